// The search.
//
// 1. A wallet, in any case or with its checksum, leads to its verdict; an id leads to its agent.
// 2. Other input is refused with field and rule, before any request.
// 3. What only the API can judge, a wrong checksum, is refused with its words.

import assert from "node:assert/strict";

import { api } from "../harness/api.mjs";
import { scenario } from "../harness/scenario.mjs";
import { stack } from "../harness/stack.mjs";
import { search, settled } from "../harness/views.mjs";

const { kyoto, atlas } = stack.agents;

scenario("a wallet leads to its verdict, in whatever case it is written", async ({ page, open }) => {
  for (const wallet of [kyoto.wallet, kyoto.wallet.toLowerCase(), ` ${kyoto.wallet}\n`, `\u200b0X${kyoto.wallet.slice(2)}\u200e`]) {
    await open("#/");
    await search(page, wallet);
    const verdict = page.getByRole("status").filter({ hasText: "Provision" });
    await verdict.waitFor();
    assert.equal(await verdict.getAttribute("data-verdict"), "provision");
    assert.match((await page.locator("h1").innerText()).replace(/\s/g, ""), new RegExp(`${kyoto.wallet}$`, "i"));
    assert.match(page.url(), new RegExp(`#/wallet/${kyoto.wallet}$`, "i"));
  }
});

scenario("an id leads to its agent", async ({ page, open }) => {
  await open("#/");
  await search(page, `0${atlas.id}`);
  await page.getByRole("heading", { level: 1, name: `Agent ${atlas.id}`, exact: true }).waitFor();
  await settled(page);
  assert.ok(page.url().endsWith(`#/agent/${atlas.id}`), page.url());
  assert.match(await page.locator("main").innerText(), /reads papers, writes summaries/);
});

scenario("what is neither wallet nor id is refused with field and rule, and no source is asked", async ({ page, front, open }) => {
  await open("#/");
  await settled(page);
  const asked = front.apiRequests.length;
  for (const nonsense of ["", "0x1234", "<b>"]) {
    await search(page, nonsense);
    const alert = page.getByRole("alert");
    assert.match(await alert.innerText(), /^Wallet or agent id must be 0x and 40 hexadecimal digits, or a whole number/, nonsense);
    const input = page.getByLabel("Wallet or agent id");
    assert.equal(await input.getAttribute("aria-invalid"), "true");
    assert.equal(await input.inputValue(), nonsense, "what was typed stays");
    assert.equal(await input.evaluate((element) => element === document.activeElement), true, "the field to mend has the focus");
  }
  assert.equal(front.apiRequests.length, asked);
  await search(page, String(atlas.id));
  await page.getByRole("heading", { level: 1, name: `Agent ${atlas.id}`, exact: true }).waitFor();
  assert.equal(await page.getByRole("alert").count(), 0, "the complaint goes with the mistake");
});

scenario("a wallet with a wrong checksum is refused with the API's words", { faults: true }, async ({ page, open }) => {
  const digits = kyoto.wallet.slice(2);
  const wrong = `0x${digits === digits.toUpperCase() ? digits.toLowerCase() : swapFirstLetter(digits)}`;
  await open("#/");
  await search(page, wrong);
  const alert = await page.getByRole("alert").innerText();
  const { error } = (await api(`/api/v1/kya/${wrong}`)).document;
  assert.match(error, /checksum/);
  assert.ok(alert.includes(error), alert);
});

/** The first letter in the other case, which no checksum survives. */
function swapFirstLetter(digits) {
  return digits.replace(/[a-f]/i, (letter) => (letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase()));
}
