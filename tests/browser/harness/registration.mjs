// The form "Register gaslessly", for tests that need an agent.

import assert from "node:assert/strict";

import { id as keccak256OfText } from "ethers";

import { eventually } from "./eventually.mjs";
import { stack } from "./stack.mjs";
import { saveSettings, settled } from "./views.mjs";

export const LIABLE = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
export const HASH = keccak256OfText("constitution");
export const REGISTER = "Sign and register";

export const field = (page, label) => page.getByLabel(label, { exact: true });

/** The form, with a relayer set, the wallet connected and every field filled in. */
export async function filled(scene, { relayer = stack.relayer, scope = "Waters the plants" } = {}) {
  const { page, open } = scene;
  await saveSettings(scene, { "Relayer URL": relayer });
  await open("#/register");
  await settled(page);
  await page.getByRole("button", { name: "Connect wallet" }).click();
  await eventually(async () => assert.equal(await field(page, "Agent wallet").inputValue(), scene.wallet.address));
  await field(page, "Liable person (Haftungsperson)").fill(LIABLE);
  await field(page, "Constitution hash").fill(HASH);
  await field(page, "Capability hash").fill(HASH);
  await field(page, "Operational scope").fill(scope);
}

/** Sends the form; what became of it. */
export async function send(page) {
  await page.getByRole("button", { name: REGISTER }).click();
  const ended = page.locator("[data-registration]:not([data-registration=pending])");
  await ended.waitFor();
  return { outcome: await ended.getAttribute("data-registration"), text: await ended.innerText(), ended };
}
