// The visitor's settings: which services the page may ask besides its own server.
//
// 1. What is saved is kept, and used; what a link fills in is neither until the visitor saves it.
// 2. Addresses that are none, that are not encrypted, or that hold a password are refused with field and rule.
// 3. An address on the screen can be copied whole.

import assert from "node:assert/strict";

import { scenario } from "../harness/scenario.mjs";
import { stack } from "../harness/stack.mjs";
import { saveSettings, settled, verify } from "../harness/views.mjs";

const { kyoto } = stack.agents;
const LABELS = ["RPC URL", "Relayer URL", "Registry address"];

const values = (page) => Promise.all(LABELS.map((label) => page.getByLabel(label, { exact: true }).inputValue()));

scenario("what is saved is there after a reload", async (scene) => {
  const { page } = scene;
  const saved = [stack.rpc, stack.relayer, stack.registry];
  await saveSettings(scene, Object.fromEntries(LABELS.map((label, index) => [label, saved[index]])));
  await page.reload();
  await settled(page);
  assert.deepEqual(await values(page), saved);
  await saveSettings(scene, Object.fromEntries(LABELS.map((label) => [label, ""])));
  await page.reload();
  await settled(page);
  assert.deepEqual(await values(page), ["", "", ""]);
});

scenario("what a link fills in is used by nobody until the visitor saves it", async ({ page, front, guard, open }) => {
  const link = new URLSearchParams({ rpc: stack.rpc, relayer: stack.relayer });
  await open(`#/settings?${link}`);
  await settled(page);
  assert.deepEqual((await values(page)).slice(0, 2), [stack.rpc, stack.relayer]);
  await page.getByText("Nothing is kept until you save").waitFor();

  await open(`#/agent/${kyoto.id}`);
  await settled(page);
  assert.equal((await verify(page)).outcome, "error", "no source is set");
  assert.deepEqual([...guard.origins], [front.url]);

  await open(`#/settings?${link}`);
  await page.getByRole("button", { name: "Save settings" }).click();
  await page.getByRole("status").getByText("Saved").waitFor();
  await open(`#/agent/${kyoto.id}`);
  await settled(page);
  assert.equal((await verify(page)).outcome, "agreement");
});

scenario("an address that cannot be used safely is refused with field and rule, and not kept", async ({ page, open }) => {
  const refused = {
    "RPC URL": ["https://user:password@rpc.example.org", /^RPC URL must not hold a user name or password/],
    "Relayer URL": ["ftp://relayer.example.org", /^Relayer URL must begin with https:\/\//],
    "Registry address": ["0x1234", /^Registry address must be 0x and 40 hexadecimal digits/],
  };
  await open("#/settings");
  for (const [label, [wrong, rule]] of Object.entries(refused)) {
    const input = page.getByLabel(label, { exact: true });
    await input.fill(wrong);
    await page.getByRole("button", { name: "Save settings" }).click();
    assert.match(await page.getByRole("alert").innerText(), rule);
    assert.equal(await input.getAttribute("aria-invalid"), "true");
    assert.equal(await page.getByText("Saved").count(), 0, wrong);
    await input.fill("");
  }
  await page.reload();
  await settled(page);
  assert.deepEqual(await values(page), ["", "", ""]);
});

scenario("an address on the screen can be copied whole", { viewport: { width: 360, height: 740 } }, async ({ page, open }) => {
  await open(`#/wallet/${kyoto.wallet}`);
  await settled(page);
  await page.getByRole("button", { name: `Copy address ${kyoto.wallet}` }).click();
  // The browser takes its time to copy, and says when it has.
  await page.locator("#announcer", { hasText: "Copied" }).waitFor({ state: "attached" });
  await page.getByLabel("Wallet or agent id").focus();
  await page.keyboard.press("Control+V");
  assert.equal(await page.getByLabel("Wallet or agent id").inputValue(), kyoto.wallet);
});
