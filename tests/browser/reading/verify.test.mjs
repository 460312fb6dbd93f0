// "Verify against the chain": the same question, answered by the core in the page from the visitor's own source.
//
// 1. Every view's answer agrees, from an RPC URL of the visitor's own and from a wallet, and the API is not asked again.
// 2. An API that lies about any field is found out: the field, its word and the chain's.
// 3. An API that shows another registry than the visitor's is found out, though its answers agree with themselves.
// 4. A verdict is proved by the block hash that the visitor's own endpoint has; a document that was changed proves nothing,
//    and a source of another chain, or one that is silent, is named.
// 5. An RPC that is down, one of another chain, and none at all are told apart and explained.

import assert from "node:assert/strict";

import { api } from "../harness/api.mjs";
import { scenario } from "../harness/scenario.mjs";
import { stack } from "../harness/stack.mjs";
import { UNREGISTERED, saveSettings, settled, verify } from "../harness/views.mjs";

const { agents } = stack;

/** Every view that shows an answer of the API's. */
const ANSWERS = {
  "the start page": "#/",
  "a compliant wallet": `#/wallet/${agents.kyoto.wallet}`,
  "an expired wallet": `#/wallet/${agents.forgetful.wallet}`,
  "a wallet without an agent": `#/wallet/${UNREGISTERED}`,
  "an agent with revenue": `#/agent/${agents.atlas.id}`,
  "an agent with more cents than a double holds": `#/agent/${agents.ledger.id}`,
  "a lineage": `#/agent/${agents.atlas.id}/lineage`,
  "a lineage that is cut": `#/agent/${agents.harbour.id}/lineage`,
  "a page of agents": "#/agents?page=2&limit=50",
  "agents of one status": "#/agents?sort=id&status=Revoked",
  "the statistics": "#/statistics",
};

async function verified({ page, open }, hash) {
  await open(hash);
  await settled(page);
  return verify(page);
}

scenario("every answer agrees with the visitor's own RPC", async (scene) => {
  await saveSettings(scene, { "RPC URL": stack.rpc });
  for (const [name, hash] of Object.entries(ANSWERS)) {
    await scene.open(hash);
    await settled(scene.page);
    const asked = scene.front.apiRequests.length;
    const { outcome, text } = await verify(scene.page);
    assert.equal(outcome, "agreement", `${name}: ${text}`);
    assert.match(text, /\b[1-9]\d* fields? compared/, name);
    const again = scene.front.apiRequests.slice(asked).filter((path) => path !== "/api/v1/stats");
    assert.deepEqual(again, [], `${name}: the API is not asked about its own answer`);
  }
});

// Where the core asks is all that differs.
for (const wallet of ["window.ethereum", "EIP-6963"]) {
  scenario(`answers agree with a wallet in ${wallet}`, { wallet }, async (scene) => {
    for (const [name, hash] of Object.entries(ANSWERS).slice(0, 3)) {
      const asked = scene.wallet.asked.length;
      const { outcome, text } = await verified(scene, hash);
      assert.equal(outcome, "agreement", `${name}: ${text}`);
      assert.ok(scene.wallet.asked.slice(asked).includes("eth_call"), `${name}: the wallet was asked`);
    }
    assert.ok(!scene.wallet.asked.includes("eth_requestAccounts"), "reading needs no account");
  });
}

/** One lie for each kind of answer: the view, the path that lies, what it says instead of the truth, the field it is found in. */
const LIES = [
  [`#/wallet/${agents.forgetful.wallet}`, /\/kya\//, '"isCompliant":false', '"isCompliant":true', "isCompliant"],
  [`#/wallet/${agents.kyoto.wallet}`, /\/kya\//, /"haftungsperson":"0x.{40}"/, `"haftungsperson":"${UNREGISTERED}"`, "agent.haftungsperson"],
  [`#/agent/${agents.paused.id}`, /\/agent\/\d+$/, '"status":"Suspended"', '"status":"Active"', "agent.status"],
  [`#/agent/${agents.ledger.id}`, /\/revenue\?/, "9007199254740993", "9007199254740992", "data[0].amount"],
  [`#/agent/${agents.atlas.id}/lineage`, /\/lineage$/, '"children":[]', '"children":[],"note":"pruned"', "note"],
  ["#/agents?sort=id", /\/agents$/, '"total":', '"total":1', "total"],
  ["#/statistics", /\/aggregate$/, '"totalReports":', '"totalReports":1', "totalReports"],
];

scenario("an API that lies is found out, with the field, its word and the chain's", async (scene) => {
  await saveSettings(scene, { "RPC URL": stack.rpc });
  for (const [hash, path, from, to, field] of LIES) {
    let told = false;
    const rewrite = (body) => {
      const lie = body.replace(from, to);
      told = lie !== body;
      return lie;
    };
    scene.front.on(path, { rewrite });
    const { outcome, text } = await verified(scene, hash);
    assert.ok(told, `${hash}: the lie was told`);
    assert.equal(outcome, "difference", `${hash}: ${text}`);
    assert.match(text, /1 field differs/, hash);
    const row = scene.page.locator("[data-verify] tbody tr").first();
    const [named, api, chain] = await row.evaluate((element) => [...element.cells].map((cell) => cell.textContent));
    assert.ok(named.endsWith(field), `${hash}: ${named}`);
    assert.notEqual(api, chain);
    scene.front.heal();
  }
});

scenario("an agent that is not on the chain is found out", async (scene) => {
  await saveSettings(scene, { "RPC URL": stack.rpc });
  const { agent } = (await api(`/api/v1/agent/${agents.kyoto.id}`)).document;
  const invented = JSON.stringify({
    agent: { ...agent, agentId: 4711 },
    children: [],
    compliance: { isActive: true, attestationCurrent: true, secondsSinceAttestation: 5, childCount: 0, status: "Active" },
  });
  scene.front.on(/\/agent\/4711$/, { answer: { status: 200, body: invented } });
  const none = JSON.stringify({ total: 0, offset: 0, limit: 50, data: [] });
  scene.front.on(/\/agent\/4711\/revenue/, { answer: { status: 200, body: none } });
  const { outcome, text } = await verified(scene, "#/agent/4711");
  assert.equal(outcome, "difference", text);
  assert.match(text, /Agent not found: 4711/);
});

scenario("an API that shows another registry than the visitor's is found out", async (scene) => {
  await saveSettings(scene, { "RPC URL": stack.rpc, "Registry address": stack.registry });
  scene.front.on(/\/stats$/, { rewrite: (body) => body.replace(stack.registry, UNREGISTERED) });
  const { outcome, text } = await verified(scene, `#/agent/${agents.kyoto.id}`);
  assert.equal(outcome, "difference", text);
  assert.match(text, /another registry/);
  assert.ok((await scene.page.locator("[data-verify]").textContent()).includes(UNREGISTERED));
});

scenario("an RPC that is down verifies nothing, and the page says which", { faults: true }, async (scene) => {
  await saveSettings(scene, { "RPC URL": `${stack.silentRpc}/v3/secret-key` });
  const { outcome, text } = await verified(scene, `#/agent/${agents.kyoto.id}`);
  assert.equal(outcome, "error", text);
  assert.match(text, /Not verified/);
  assert.ok(text.includes(stack.silentRpc), text);
  assert.ok(!(await scene.page.locator("main").innerText()).includes("secret-key"), "a provider's key is not shown");
  await scene.page.getByRole("alert").filter({ hasText: "Not verified" }).waitFor();
});

scenario("an RPC of another chain verifies nothing", async (scene) => {
  await saveSettings(scene, { "RPC URL": stack.otherRpc });
  const { outcome, text } = await verified(scene, `#/agent/${agents.kyoto.id}`);
  assert.equal(outcome, "error", text);
  assert.match(text, /Not verified/);
  assert.match(text, /contract|registry/i, `says what is missing there: ${text}`);
});

scenario("after the RPC is mended the same button verifies", { faults: true }, async (scene) => {
  await saveSettings(scene, { "RPC URL": stack.silentRpc });
  assert.equal((await verified(scene, `#/agent/${agents.kyoto.id}`)).outcome, "error");
  await saveSettings(scene, { "RPC URL": stack.rpc });
  assert.equal((await verified(scene, `#/agent/${agents.kyoto.id}`)).outcome, "agreement");
});

scenario("without a source the page says how to get one", async (scene) => {
  const { outcome, text } = await verified(scene, `#/agent/${agents.kyoto.id}`);
  assert.equal(outcome, "error");
  assert.match(text, /RPC URL/);
  await scene.page.locator("[data-verify]").getByRole("link", { name: "settings" }).click();
  await scene.page.getByLabel("RPC URL").waitFor();
});

/** Presses the button below a verdict, and waits for what comes of it. */
async function proved({ page, open }, wallet) {
  await open(`#/wallet/${wallet}`);
  await settled(page);
  await page.getByRole("button", { name: "Prove by a block hash" }).click();
  const result = page.locator("[data-proof]");
  await result.waitFor();
  return { outcome: await result.getAttribute("data-proof"), text: await result.innerText() };
}

scenario("a verdict is proved by the block hash that the visitor's own endpoint has", async (scene) => {
  await saveSettings(scene, { "RPC URL": stack.rpc, "Registry address": stack.registry });
  for (const [wallet, decision] of [
    [agents.kyoto.wallet, "provision"],
    [agents.forgetful.wallet, "request_renewal"],
    [UNREGISTERED, "deny"],
  ]) {
    const { outcome, text } = await proved(scene, wallet);
    assert.equal(outcome, "proved", text);
    const said = new RegExp(`Proved: ${decision}, against block \\d+, whose hash 1 of 1 endpoint you named agree on`);
    assert.match(text, said);
    await scene.page.getByRole("link", { name: "Keep the document" }).waitFor();
  }
});

scenario("a document that was changed proves nothing, and neither does a hash of another chain", async (scene) => {
  await saveSettings(scene, { "RPC URL": stack.rpc });
  scene.front.on(/evidence=1/, { rewrite: (body) => body.replace('"status":"Suspended"', '"status":"Active"') });
  const changed = await proved(scene, agents.paused.wallet);
  assert.equal(changed.outcome, "error", changed.text);
  assert.match(changed.text, /Not proved[^]*verdict\.agent\.status/);
  scene.front.heal();

  await saveSettings(scene, { "RPC URL": stack.otherRpc });
  const elsewhere = await proved(scene, agents.kyoto.wallet);
  assert.equal(elsewhere.outcome, "error", elsewhere.text);
  assert.match(elsewhere.text, /127\.0\.0\.1:\d+ is on chain 4242, the document is of chain 31337/);
});

scenario("a wallet that is on another chain than the document is told apart from a server that lies", { wallet: "EIP-6963" }, async (scene) => {
  await saveSettings(scene, { "RPC URL": stack.rpc });
  scene.wallet.chainId = 1;
  const { outcome, text } = await proved(scene, agents.kyoto.wallet);
  assert.equal(outcome, "error", text);
  assert.match(text, /Not proved\.\s+Test wallet is on chain 1, the document is of chain 31337\./);
  scene.wallet.chainId = null;
  assert.equal((await proved(scene, agents.kyoto.wallet)).outcome, "proved");
});

scenario("a source that takes a question and never answers is named, in time", { wallet: "EIP-6963" }, async (scene) => {
  scene.front.on(/^\/silent/, { hold: new Promise(() => {}) });
  await saveSettings(scene, { "RPC URL": `${scene.front.url}/silent` });
  const { outcome, text } = await proved(scene, agents.kyoto.wallet);
  assert.equal(outcome, "error", text);
  assert.match(text, /do not agree on the hash of block \d+\. http:\/\/127\.0\.0\.1:\d+: no answer; Test wallet: 0x[0-9a-f]{64}/);
  await saveSettings(scene, { "RPC URL": stack.rpc });
  assert.equal((await proved(scene, agents.kyoto.wallet)).outcome, "proved");
});

scenario("without a source none can be asked for a block's hash", async (scene) => {
  const { outcome, text } = await proved(scene, agents.kyoto.wallet);
  assert.equal(outcome, "error", text);
  assert.match(text, /RPC URL/);
});
