// "Ask as an agent": a wallet signs a request to a guarded service.
//
// 1. A wallet that is no agent is refused with the gate's code; registered, it is admitted.
// 2. No in the wallet, no wallet, no address, a service that does not answer: each is said in words, and nothing is sent.
// 3. A refusal's link to register or to renew says its host; what is no address of the web is no link.

import assert from "node:assert/strict";

import { eventually } from "../harness/eventually.mjs";
import * as registration from "../harness/registration.mjs";
import { scenario } from "../harness/scenario.mjs";
import { stack } from "../harness/stack.mjs";
import { settled } from "../harness/views.mjs";

const wallet = "window.ethereum";

/** The view, with the wallet connected where there is one, and this address filled in. */
async function filled({ page, open }, service, { isConnected = true } = {}) {
  await open("#/ask");
  await settled(page);
  if (isConnected) {
    await page.getByRole("button", { name: "Connect wallet" }).click();
    await page.getByText("Wallet 0x").waitFor();
  }
  await registration.field(page, "Address at the service").fill(service);
}

/** Signs and asks; what became of it. */
async function ask(page) {
  await page.getByRole("button", { name: "Sign and ask" }).click();
  const ended = page.locator("[data-gate=admitted], [data-gate=refused], [data-gate=error]");
  await ended.waitFor();
  return { outcome: await ended.getAttribute("data-gate"), text: await ended.innerText(), ended };
}

scenario("a wallet is refused, registers, and is admitted", { wallet, faults: true }, async (scene) => {
  const { page } = scene;
  await filled(scene, `${stack.guarded}/items?view=full`);
  const refused = await ask(page);
  assert.equal(refused.outcome, "refused", refused.text);
  assert.match(refused.text, /403 kya_not_allowed \(deny\)/);
  await refused.ended.getByRole("link", { name: "Register one" }).click();
  await page.getByRole("heading", { level: 1, name: "Register gaslessly" }).waitFor();
  await registration.filled(scene);
  const { outcome, text } = await registration.send(page);
  assert.equal(outcome, "done", text);

  await filled(scene, `${stack.guarded}/items?view=full`);
  await eventually(async () => {
    const { outcome, text } = await ask(page);
    assert.equal(outcome, "admitted", text);
    assert.ok(text.includes(scene.wallet.address), text);
  });
});

scenario("what keeps a request from being sent is said in words", { wallet, faults: true }, async (scene) => {
  const { page } = scene;
  await filled(scene, "ftp://api.example");
  await page.getByRole("button", { name: "Sign and ask" }).click();
  await page.getByText("Address at the service must be an address that begins with https:// or http://.").waitFor();
  await filled(scene, stack.silentRpc);
  const silent = await ask(page);
  assert.match(silent.text, /does not answer, or does not let other sites ask it/);
  scene.wallet.rejects.add("personal_sign");
  await filled(scene, `${stack.guarded}/items`);
  assert.match((await ask(page)).text, /You declined in the wallet. Nothing was sent./);
  scene.wallet.rejects.add("eth_requestAccounts");
  await page.getByRole("button", { name: "Connect wallet" }).click();
  await page.locator(".connected").getByRole("alert").waitFor();
  await page.getByRole("button", { name: "Sign and ask" }).click();
  await page.getByText("Connect a wallet first").waitFor();
});

scenario("without a wallet the page asks for one", {}, async (scene) => {
  await filled(scene, `${stack.guarded}/items`, { isConnected: false });
  assert.match((await ask(scene.page)).text, /Connect a wallet first/);
});

scenario("a refusal's link says where it leads, and only an address of the web is one", { wallet, faults: true }, async (scene) => {
  const { page, front } = scene;
  for (const [decision, name, link, host] of [
    ["deny", "register", "https://agents.example/new?from=gate", "agents.example"],
    ["request_renewal", "renew", "http://agents.example:8080/", "agents.example:8080"],
    ["deny", "register", "javascript:alert(1)"],
    ["deny", "register", "//agents.example"],
    ["request_renewal", "renew", "data:text/html,renewed"],
  ]) {
    // One that the last answer has not had.
    const detail = `No ${name} at <${link}>.`;
    const body = JSON.stringify({ reason: "kya_not_allowed", detail, decision, [name]: link });
    front.on(/^\/items$/, { answer: { status: 403, body } });
    await filled(scene, `${front.url}/items`);
    const { ended } = await ask(page);
    await ended.getByText(detail).waitFor();
    const links = await ended.getByRole("link").evaluateAll((all) => all.map((element) => element.getAttribute("href")));
    const expected = host ? [link] : decision === "deny" ? ["#/register"] : [];
    assert.deepEqual(links, expected, link);
    assert.equal(/ (?:one|it) at (\S+)$/m.exec(await ended.innerText())?.[1], host, link);
  }
});
