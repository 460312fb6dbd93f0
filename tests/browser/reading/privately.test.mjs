// Asking privately: the service learns a range of wallets, and not the one that is looked up.
//
// 1. The verdict is the chain's; what was sent is on the page, and nothing else was; the wallet is in no request.
// 2. Without the setting the page asks for the wallet.
// 3. A wallet that no range has a verdict on can only be asked for openly: the page says so, and asks for nothing else.

import assert from "node:assert/strict";

import { keccak256 } from "ethers";

import { scenario } from "../harness/scenario.mjs";
import { stack } from "../harness/stack.mjs";
import { UNREGISTERED, settled } from "../harness/views.mjs";

const { kyoto, ledger, paused } = stack.agents;

/** Verdicts by their wallets. */
const VERDICTS = [
  [kyoto.wallet, "provision"],
  [paused.wallet, "renew-stopped"],
  [UNREGISTERED, "deny"],
];

const kind = (page) => page.getByRole("status").filter({ visible: true }).getAttribute("data-verdict");

async function choose({ page, open }, isPrivate) {
  await open("#/settings");
  await page.getByLabel("Ask privately", { exact: true }).setChecked(isPrivate);
  await page.getByRole("button", { name: "Save settings" }).click();
  await page.getByRole("status").getByText("Saved").waitFor();
}

scenario("a wallet that is asked for privately is not sent, and the page shows what was", { worker: stack.snapshots }, async (scene) => {
  const { page, front, open } = scene;
  await choose(scene, true);
  await page.reload();
  assert.ok(await page.getByLabel("Ask privately", { exact: true }).isChecked(), "the setting is kept");
  for (const [wallet, verdict] of VERDICTS) {
    front.requests.length = 0;
    await open(`#/wallet/${wallet}`);
    await settled(page);
    assert.equal(await kind(page), verdict, wallet);
    const range = `/api/v1/kya/range/${keccak256(wallet).slice(2, 3)}`;
    await page.getByText(`The service was sent ${range}`).waitFor();
    assert.deepEqual(front.apiRequests.filter((path) => path !== range), []);
    const named = front.requests.filter((path) => path.toLowerCase().includes(wallet.slice(2).toLowerCase()));
    assert.deepEqual(named, [], "requests that name the wallet");
  }

  await choose(scene, false);
  await open(`#/wallet/${kyoto.wallet}`);
  await settled(page);
  assert.equal(await kind(page), "provision");
  assert.ok(front.requests.includes(`/api/v1/kya/${kyoto.wallet}?history=1`));
  assert.equal(await page.locator("[data-sent]").count(), 0);
});

scenario("of an agent with a long scope the page says that it can only be asked for openly", { worker: stack.snapshots }, async (scene) => {
  const { page, front, open } = scene;
  await choose(scene, true);
  front.requests.length = 0;
  await open(`#/wallet/${ledger.wallet}`);
  await settled(page);
  const said = page.getByRole("alert").filter({ hasText: "This wallet can only be asked for openly" });
  await said.waitFor();
  assert.deepEqual(front.apiRequests, [`/api/v1/kya/range/${keccak256(ledger.wallet).slice(2, 3)}`]);
  await said.getByRole("link", { name: "settings" }).click();
  await page.getByLabel("Ask privately", { exact: true }).waitFor();
  await choose(scene, false);
  await open(`#/wallet/${ledger.wallet}`);
  await settled(page);
  await page.locator("[data-verdict]").waitFor();
});
