// "Register gaslessly": a wallet without ETH becomes an agent.
//
// 1. Connect, fill in, sign, and the agent is on the chain, with every field as it was typed and the wallet as its creator.
// 2. A child is registered under its parent; hashes are made of texts.
// 3. What is wrong with the form is said by field and rule, before the wallet is asked.
// 4. No in the wallet, no wallet, another account, a wallet on another chain, no relayer, a relayer that is down or refuses: each is said in words, and
//    the form can be sent again.
// 5. A registration that was sent is asked for where an answer is lost, and sent again where it did not arrive, with one signature.

import assert from "node:assert/strict";

import { id as keccak256OfText } from "ethers";

import { eventually } from "../harness/eventually.mjs";
import { field, filled, HASH, LIABLE, REGISTER, send } from "../harness/registration.mjs";
import { scenario } from "../harness/scenario.mjs";
import { registry, stack } from "../harness/stack.mjs";
import { settled } from "../harness/views.mjs";

const wallet = "window.ethereum";

const registered = async (address) => (await registry()).isRegistered(address);

scenario("a wallet without ETH becomes an agent", { wallet }, async (scene) => {
  const { page } = scene;
  const scope = "Prüft Rechnungen — 請求書 🧾, \"quoted\" & <b>marked</b>\nон two lines";
  await filled(scene, { scope });
  await page.getByLabel("Self-modifying").check();
  const { outcome, text, ended } = await send(page);
  assert.equal(outcome, "done", text);

  const record = await (await registry()).getAgentByWallet(scene.wallet.address);
  assert.equal(record.creator, scene.wallet.address, "who signed is the creator");
  assert.equal(record.haftungsperson, LIABLE);
  assert.equal(record.operationalScope, scope);
  assert.equal(record.constitutionHash, HASH);
  assert.equal(record.selfModifying, true);
  assert.equal(record.parentAgentId, 0n);
  const { provider } = (await registry()).runner;
  assert.equal(await provider.getBalance(scene.wallet.address), 0n, "it never had any ETH");
  assert.equal(await provider.getTransactionCount(scene.wallet.address), 0, "and sent nothing itself");
  assert.equal(scene.wallet.asked.filter((method) => method.startsWith("eth_sign")).length, 1, "one signature");

  await ended.getByRole("link", { name: `Agent ${record.agentId}`, exact: true }).click();
  await page.getByRole("heading", { level: 1, name: `Agent ${record.agentId}`, exact: true }).waitFor();
  await settled(page);
  assert.match(await page.locator("main").innerText(), /Active\s+Compliant/);
  await scene.open(`#/wallet/${scene.wallet.address}`);
  await page.locator("[data-verdict=provision]").waitFor();
});

scenario("a child is registered under its parent, its hashes made of texts", { wallet: "EIP-6963" }, async (scene) => {
  const { page } = scene;
  await filled(scene);
  await field(page, "Parent agent id").fill(String(stack.agents.atlas.id));
  for (const [name, text] of [["Constitution hash", "Do no harm.\n"], ["Capability hash", "読み書き"]]) {
    const part = page.locator(".field", { has: field(page, name) });
    await part.getByText("Hash a text").click();
    await part.locator("textarea").fill(text);
    await eventually(async () => assert.equal(await field(page, name).inputValue(), keccak256OfText(text)));
  }
  const { outcome, text } = await send(page);
  assert.equal(outcome, "done", text);
  const record = await (await registry()).getAgentByWallet(scene.wallet.address);
  assert.equal(record.parentAgentId, BigInt(stack.agents.atlas.id));
  assert.equal(record.generation, 1n);
  assert.equal(record.constitutionHash, keccak256OfText("Do no harm.\n"));
  assert.equal(record.capabilityHash, keccak256OfText("読み書き"));
});

scenario("that a text cannot be hashed is said until it can", { faults: true }, async ({ page, front, open }) => {
  await open("#/register");
  await settled(page);
  const part = page.locator(".field", { has: field(page, "Constitution hash") });
  await part.getByText("Hash a text").click();
  front.on(/registry_bg[^/]*\.wasm$/, { close: true });
  await part.locator("textarea").fill("Do no");
  const fault = part.getByRole("alert").filter({ hasText: "The text cannot be hashed" });
  await fault.waitFor();
  front.heal();
  await part.locator("textarea").fill("Do no harm.");
  await fault.waitFor({ state: "detached" });
  assert.equal(await field(page, "Constitution hash").inputValue(), keccak256OfText("Do no harm."));
});

scenario("what is wrong with the form is said by field and rule, before the wallet is asked", { wallet }, async (scene) => {
  const { page } = scene;
  await filled(scene);
  const asked = scene.wallet.asked.length;
  const rules = {
    "Liable person (Haftungsperson)": ["0x1234", /^Liable person \(Haftungsperson\) must be 0x and 40 hexadecimal digits/],
    "Agent wallet": ["", /^Agent wallet must be 0x and 40 hexadecimal digits/],
    "Constitution hash": ["constitution", /^Constitution hash must be 0x and 64 hexadecimal digits/],
    "Capability hash": [`${HASH}00`, /^Capability hash must be 0x and 64 hexadecimal digits/],
    "Parent agent id": ["-1", /^Parent agent id must be a whole number/],
  };
  for (const [label, [wrong, rule]] of Object.entries(rules)) {
    const input = field(page, label);
    const right = await input.inputValue();
    await input.fill(wrong);
    await page.getByRole("button", { name: REGISTER }).click();
    assert.match(await page.getByRole("alert").innerText(), rule);
    assert.equal(await input.getAttribute("aria-invalid"), "true");
    assert.equal(await input.evaluate((element) => element === document.activeElement), true);
    await input.fill(right);
  }
  assert.equal(scene.wallet.asked.length, asked);
});

scenario("no in the wallet ends it, nothing is relayed, and it can be tried again", { wallet }, async (scene) => {
  await filled(scene);
  scene.wallet.rejects.add("eth_signTypedData_v4");
  const refused = await send(scene.page);
  assert.equal(refused.outcome, "error");
  assert.match(refused.text, /You declined in the wallet\. Nothing was sent\./);
  assert.equal(await registered(scene.wallet.address), false);

  scene.wallet.rejects.clear();
  assert.equal((await send(scene.page)).outcome, "done");
  assert.equal(await registered(scene.wallet.address), true);
});

scenario("a wallet that will not connect is said in words", { wallet }, async ({ page, wallet, open }) => {
  wallet.rejects.add("eth_requestAccounts");
  await open("#/register");
  await page.getByRole("button", { name: "Connect wallet" }).click();
  await page.getByRole("alert").filter({ hasText: "You declined in the wallet" }).waitFor();
});

scenario("another account that is connected takes the place of the first, and none does where the wallet declines", { wallet }, async (scene) => {
  const { page } = scene;
  const connect = () => page.getByRole("button", { name: "Connect wallet" }).click();
  const connected = page.locator(".connected");
  const isConnected = () => eventually(async () => assert.ok((await connected.textContent()).includes(scene.wallet.address)));
  await filled(scene);
  // The wallet's owner turns to another account.
  scene.wallet.renew();
  await connect();
  await isConnected();
  assert.equal(await field(page, "Agent wallet").inputValue(), scene.wallet.address);

  await field(page, "Agent wallet").fill(LIABLE);
  scene.wallet.renew();
  await connect();
  await isConnected();
  assert.equal(await field(page, "Agent wallet").inputValue(), LIABLE, "what was typed is kept");

  scene.wallet.rejects.add("eth_requestAccounts");
  await connect();
  await connected.getByRole("alert").filter({ hasText: "You declined in the wallet" }).waitFor();
  const { outcome, text } = await send(page);
  assert.equal(outcome, "error");
  assert.match(text, /Connect a wallet first/);
  assert.ok(!scene.wallet.asked.includes("eth_signTypedData_v4"));
});

scenario("without a wallet, or not connected, the page says what is missing", async ({ page, open }) => {
  await open("#/register");
  await page.getByRole("button", { name: "Connect wallet" }).click();
  await page.getByRole("alert").filter({ hasText: "This browser has no wallet" }).waitFor();
});

scenario("a wallet on another chain signs nothing", { wallet }, async (scene) => {
  scene.wallet.chainId = 1;
  await filled(scene);
  const { outcome, text } = await send(scene.page);
  assert.equal(outcome, "error");
  assert.match(text, /another chain/);
  assert.match(text, /31337/, "names the chain to switch to");
  assert.ok(!scene.wallet.asked.includes("eth_signTypedData_v4"));
});

scenario("a relayer that is down is said in words", { wallet, faults: true }, async (scene) => {
  await filled(scene, { relayer: stack.silentRpc });
  const { outcome, text } = await send(scene.page);
  assert.equal(outcome, "error");
  assert.match(text, /Relayer: No connection/);
  assert.ok(text.includes(stack.silentRpc));
  assert.ok(!scene.wallet.asked.includes("eth_signTypedData_v4"), "nobody signs for a relayer that is not there");
});

for (const [what, arrives] of [["without its answer", true], ["that is lost on its way", false]]) {
  scenario(`a registration ${what} is asked for, and done`, { wallet, faults: true, alone: true }, async (scene) => {
    const { page } = scene;
    await filled(scene);
    const [sent, polls] = [[], []];
    await page.route(`${stack.relayer}/relay`, async (route) => {
      sent.push(route.request().postData());
      if (sent.length > 1) return route.continue();
      if (arrives) await route.fetch();
      return route.abort();
    });
    const json = { error: "The database does not answer", code: "STORE_UNAVAILABLE" };
    const busy = { status: 503, headers: { "access-control-allow-origin": "*" }, json };
    await page.route(`${stack.relayer}/relay/*`, (route) => (polls.push(route) === 1 ? route.fulfill(busy) : route.continue()));
    const { outcome, text } = await send(page);
    assert.equal(outcome, "done", text);
    assert.equal(await registered(scene.wallet.address), true);
    assert.equal(scene.wallet.asked.filter((method) => method.startsWith("eth_sign")).length, 1, "one signature");
    assert.deepEqual(sent, new Array(arrives ? 1 : 2).fill(sent[0]), "the same bytes");
  });
}

scenario("without a relayer the page leads to the settings", { wallet }, async (scene) => {
  await filled(scene, { relayer: "" });
  const { outcome, text, ended } = await send(scene.page);
  assert.equal(outcome, "error");
  assert.match(text, /Set a relayer URL/);
  await ended.getByRole("link", { name: "settings" }).click();
  await field(scene.page, "Relayer URL").waitFor();
});

scenario("a refusal of the registry's is shown in its own words", { wallet, faults: true }, async (scene) => {
  const { page } = scene;
  await filled(scene);
  await field(page, "Agent wallet").fill(stack.agents.kyoto.wallet);
  const taken = await send(page);
  assert.equal(taken.outcome, "error");
  assert.match(taken.text, /Wallet already registered to another agent/);

  await field(page, "Agent wallet").fill(scene.wallet.address);
  await field(page, "Parent agent id").fill(String(stack.agents.paused.id));
  assert.match((await send(page)).text, /Parent agent not active/);
  assert.equal(await registered(scene.wallet.address), false);

  await field(page, "Parent agent id").fill("");
  assert.equal((await send(page)).outcome, "done", "the refusals have used up nothing");
});
