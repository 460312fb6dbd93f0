// "Ask as an agent": a wallet signs a request to a guarded service.
//
// 1. A wallet that is no agent is refused with the gate's code; registered, it is admitted.
// 2. No in the wallet, no wallet, no address, a service that does not answer: each is said in words, and nothing is sent.

import assert from "node:assert/strict";

import { id as keccak256OfText } from "ethers";

import { eventually } from "../harness/eventually.mjs";
import { scenario } from "../harness/scenario.mjs";
import { stack } from "../harness/stack.mjs";
import { saveSettings, settled } from "../harness/views.mjs";

const wallet = "window.ethereum";
const LIABLE = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const HASH = keccak256OfText("constitution");

const field = (page, label) => page.getByLabel(label, { exact: true });

/** The view, with the wallet connected where there is one, and this address filled in. */
async function filled({ page, open }, service, { isConnected = true } = {}) {
  await open("#/ask");
  await settled(page);
  if (isConnected) {
    await page.getByRole("button", { name: "Connect wallet" }).click();
    await page.getByText("Wallet 0x").waitFor();
  }
  await field(page, "Address at the service").fill(service);
}

/** Signs and asks; what became of it. */
async function ask(page) {
  await page.getByRole("button", { name: "Sign and ask" }).click();
  const ended = page.locator("[data-gate=admitted], [data-gate=refused], [data-gate=error]");
  await ended.waitFor();
  return { outcome: await ended.getAttribute("data-gate"), text: await ended.innerText(), ended };
}

/** Registers the wallet by the page itself. */
async function register(scene) {
  const { page } = scene;
  await settled(page);
  await page.getByRole("button", { name: "Connect wallet" }).click();
  await eventually(async () => assert.equal(await field(page, "Agent wallet").inputValue(), scene.wallet.address));
  await field(page, "Liable person (Haftungsperson)").fill(LIABLE);
  await field(page, "Constitution hash").fill(HASH);
  await field(page, "Capability hash").fill(HASH);
  await page.getByRole("button", { name: "Sign and register" }).click();
  await page.locator("[data-registration=done]").waitFor();
}

scenario("a wallet is refused, registers, and is admitted", { wallet, faults: true }, async (scene) => {
  const { page } = scene;
  await saveSettings(scene, { "Relayer URL": stack.relayer });
  await filled(scene, `${stack.guarded}/items?view=full`);
  const refused = await ask(page);
  assert.equal(refused.outcome, "refused", refused.text);
  assert.match(refused.text, /403 kya_not_allowed \(deny\)/);
  await refused.ended.getByRole("link", { name: "Register one" }).click();
  await register(scene);

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
});

scenario("without a wallet the page asks for one", {}, async (scene) => {
  await filled(scene, `${stack.guarded}/items`, { isConnected: false });
  assert.match((await ask(scene.page)).text, /Connect a wallet first/);
});
