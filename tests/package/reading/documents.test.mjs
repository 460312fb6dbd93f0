// The package's documents are the API's.
//
// 1. Every endpoint's text is what the Worker answers to the same path, byte by byte but for what moves by the clock
//    alone, and for what one of them does not know of a liable wallet.
// 2. The clock is the page's: at the Worker's moment the verdict is the Worker's, to the last byte.
// 3. A wallet gives the same documents, and has a batch's calls to answer side by side.
// 4. Each typed method asks its path, whatever spelling its arguments have.
// 5. Integers beyond a double arrive whole.
// 6. Questions asked at once do not mix.

import assert from "node:assert/strict";
import { mock } from "node:test";

import { test } from "../../browser/harness/declared.mjs";
import { OPTIONS, Provider, Registry, api, asFarAsBothKnow, parse, stack, still } from "../setting.mjs";

const registry = new Registry(OPTIONS);
const { atlas, harbour, kyoto, ledger } = stack.agents;

const STATUSES = ["Active", "Suspended", "Revoked", "Terminated"];

/** A path of each kind, and of each kind of answer. */
const PATHS = [
  "/health",
  "/api/v1/stats",
  "/api/v1/stats/detailed",
  "/api/v1/agents",
  "/api/v1/agents?page=2&limit=7",
  "/api/v1/agents?page=99",
  "/api/v1/agents?limit=1000&unknown=1",
  ...STATUSES.map((status) => `/api/v1/agents?status=${status}&limit=5`),
  "/api/v1/agents/compliance",
  "/api/v1/agents/compliance?limit=3",
  "/api/v1/revenue/aggregate",
  `/api/v1/agent/${atlas.id}/revenue?limit=2&offset=1`,
  `/api/v1/kya/${kyoto.wallet.toLowerCase()}?history=1`,
  "/api/v1/kya/0x000000000000000000000000000000000000dEaD?history=1",
  `/api/v1/kya/${kyoto.wallet}?block=5`,
  `/api/v1/agent/${atlas.id}?block=5`,
  ...Object.values(stack.agents).flatMap(({ id, wallet }) => [
    `/api/v1/agent/${id}`,
    `/api/v1/agent/${id}/lineage`,
    `/api/v1/agent/${id}/revenue`,
    `/api/v1/agent/${id}/ancestors`,
    // What the Worker knows of a wallet's past otherwise depends on who has asked it for what.
    `/api/v1/kya/${wallet}?history=1`,
  ]),
];

test("every document is the Worker's, byte by byte", async () => {
  assert.ok(PATHS.length > 300, `${PATHS.length} paths`);
  for (const path of PATHS) {
    const { status, text } = await api(path);
    assert.equal(status, 200, `${path}: ${text}`);
    const [own, workers] = asFarAsBothKnow(still(await registry.getText(path)), still(text));
    assert.equal(own, workers, path);
  }
});

test("at the Worker's moment a verdict is the Worker's to the last byte", async () => {
  const path = `/api/v1/kya/${kyoto.wallet}?history=1`;
  const { text } = await api(path);
  const moment = Date.parse(parse(text).checkedAt);
  const clock = mock.method(Date, "now", () => moment);
  try {
    assert.equal(await registry.getText(path), text);
  } finally {
    clock.mock.restore();
  }
});

test("a wallet gives the same documents, asked side by side", async () => {
  const provider = new Provider();
  const wallet = new Registry({ ...OPTIONS, rpc: provider });
  const named = (text) => still(text).replace(/"(rpc|chain)":"EIP-1193 provider"/, `"$1":"${stack.rpc}"`);
  for (const path of PATHS.slice(0, 40)) {
    assert.equal(named(await wallet.getText(path)), still(await registry.getText(path)), path);
  }
  assert.equal((await wallet.health()).rpc, "EIP-1193 provider");
  assert.equal((await wallet.stats()).chain, "EIP-1193 provider");

  const one = new Provider();
  await new Registry({ ...OPTIONS, rpc: one }).kya(kyoto.wallet);
  assert.equal(one.calls, 2, "a verdict is one call, and a header that tells whose blocks contracts see");
  assert.ok(provider.atOnce > 1, "what a batch holds goes out at once");
});

test("each typed method asks its path", async () => {
  const id = atlas.id;
  for (const [answer, path] of [
    [registry.health(), "/health"],
    [registry.stats(), "/api/v1/stats"],
    [registry.detailedStats(), "/api/v1/stats/detailed"],
    [registry.agent(id), `/api/v1/agent/${id}`],
    [registry.agent(BigInt(id)), `/api/v1/agent/${id}`],
    [registry.agent(String(id)), `/api/v1/agent/${id}`],
    [registry.agents(), "/api/v1/agents"],
    [registry.agents({}), "/api/v1/agents"],
    [registry.agents({ page: 2n, limit: 3, status: "Active" }), "/api/v1/agents?page=2&limit=3&status=Active"],
    [registry.agents({ status: undefined, limit: "3" }), "/api/v1/agents?limit=3"],
    [registry.compliance(), "/api/v1/agents/compliance"],
    [registry.compliance({ limit: 2 }), "/api/v1/agents/compliance?limit=2"],
    [registry.compliance({ limit: 3, cursor: "0-0" }), "/api/v1/agents/compliance?limit=3&cursor=0-0"],
    [registry.lineage(id), `/api/v1/agent/${id}/lineage`],
    [registry.revenue(id), `/api/v1/agent/${id}/revenue`],
    [registry.revenue(id, { limit: 1, offset: 2 }), `/api/v1/agent/${id}/revenue?limit=1&offset=2`],
    [registry.revenueAggregate(), "/api/v1/revenue/aggregate"],
    [registry.kya(kyoto.wallet), `/api/v1/kya/${kyoto.wallet}`],
    [registry.kya(kyoto.wallet, { history: 1 }), `/api/v1/kya/${kyoto.wallet}?history=1`],
    [registry.kya(kyoto.wallet, { block: 5 }), `/api/v1/kya/${kyoto.wallet}?block=5`],
    [registry.kyaList([kyoto.wallet, atlas.wallet]), `/api/v1/kya/${kyoto.wallet},${atlas.wallet}`],
    [registry.agent(id, { block: 5n }), `/api/v1/agent/${id}?block=5`],
    [registry.ancestors(harbour.id), `/api/v1/agent/${harbour.id}/ancestors`],
  ]) {
    const [typed, text] = await Promise.all([answer, registry.getText(path)]);
    assert.deepEqual(settled(typed), settled(parse(text)), path);
    assert.deepEqual(settled(await registry.get(path)), settled(typed), path);
  }
});

/** A document without what moves by the clock alone. */
function settled(value) {
  const moving = ["checkedAt", "secondsSinceAttestation", "asOf"];
  if (Array.isArray(value)) return value.map(settled);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name, moving.includes(name) ? null : settled(member)]),
  );
}

test("an argument stays within its place in the path", async () => {
  for (const [answer, message] of [
    [registry.kya("../agents"), /^Invalid wallet: must be 0x/],
    [registry.kya(`${kyoto.wallet}?x=1`), /^Invalid wallet: must be 0x/],
    [registry.agent("1/lineage"), /^Invalid id: must be a whole number/],
    [registry.agent(1e21), /^Invalid id: must be a whole number/],
    [registry.agent(1.5), /^Invalid id: must be a whole number/],
    [registry.agent(undefined), /^Invalid id: must be a whole number/],
    [registry.agents({ status: "Active&limit=1" }), /^Invalid status: must be one of/],
  ]) {
    await assert.rejects(answer, (error) => error.code === "INVALID_PARAMETER" && message.test(error.message));
  }
});

test("integers beyond a double arrive whole, the others as numbers", async () => {
  const { totalRevenue, totalAgents } = await registry.detailedStats();
  assert.equal(totalRevenue.JPY, 9007199254740993n + 480_000n);
  assert.equal(typeof totalRevenue.EUR, "number");
  assert.equal(typeof totalAgents, "number");
  const { data } = await registry.revenue(ledger.id);
  assert.ok(data.some(({ amount }) => amount === 9007199254740993n), JSON.stringify(data.map(String)));
  assert.equal((await registry.revenueAggregate()).byCategory.bookkeeping, 9007199254740993n);
  // The API's own text, read by the page's parser.
  assert.deepEqual(parse((await api("/api/v1/revenue/aggregate")).text), await registry.revenueAggregate());
});

test("questions asked at once do not mix", async () => {
  const agents = Object.values(stack.agents).slice(0, 20);
  const answers = await Promise.all(agents.map(({ id }) => registry.agent(id)));
  assert.deepEqual(answers.map(({ agent }) => agent.agentId), agents.map(({ id }) => id));
  const [tree, list] = await Promise.all([registry.lineage(harbour.id), registry.compliance()]);
  assert.equal(tree.agentId, harbour.id);
  assert.equal(list.total, list.data.length);
});
