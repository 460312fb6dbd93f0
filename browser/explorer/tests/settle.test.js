// What becomes of a signed request: when the relayer is asked for it, when it is sent again, and when it is given up.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ServiceError } from "../src/api";
import { settle, Unsettled } from "../src/settle";

const ID = "0x01";
const pending = { id: ID, state: "pending" };
const executed = { id: ID, state: "executed", txHash: "0x02", agentId: 7 };
const refusal = (status, code, retryAfter) => new ServiceError("no", status, code, retryAfter);
const lost = refusal(0, "UNREACHABLE");
const busy = refusal(503, "STORE_UNAVAILABLE", 1);
const limited = refusal(429, "IP_RATE_LIMITED", 3_000);
const unknown = refusal(404, "RELAY_NOT_FOUND");

/** What comes of these answers, of which the last is repeated; what the relayer was asked, "s" to send and "a" for a state. */
async function run(...answers) {
  let [asked, waited] = ["", 0];
  const signed = {};
  const next = async (letter) => {
    asked += letter;
    const answer = answers[asked.length - 1] ?? answers.at(-1);
    if (answer instanceof Error) throw answer;
    return answer;
  };
  const relay = (sent) => next(sent === signed ? "s" : "other bytes");
  const state = (id) => next(id === ID ? "a" : "another id");
  const pause = async (milliseconds) => void (waited += milliseconds);
  const outcome = await settle({ relay, state }, ID, signed, pause).catch((error) => error);
  return { outcome, asked, waited };
}

test("a request without its answer is asked for, and the same bytes are sent again where it is not known", async () => {
  const minutes = new Array(200).fill(pending);
  for (const [expected, ...answers] of [
    ["s", executed],
    ["s", { id: ID, success: true, txHash: "0x02", agentId: 7 }],
    ["sa", lost, executed],
    ["sa", refusal(200, ""), executed],
    ["sa", refusal(401, "ALREADY_RELAYED"), executed],
    ["saaaa", pending, busy, refusal(429, "IP_RATE_LIMITED", 30), lost, executed],
    ["saaa", lost, refusal(404, ""), refusal(403, ""), executed],
    ["sas", lost, unknown, executed],
    ["sasas", busy, unknown, refusal(408, "BODY_TIMEOUT"), unknown, executed],
    [`s${"a".repeat(200)}`, ...minutes, executed],
  ]) {
    const { outcome, asked } = await run(...answers);
    assert.equal(outcome.agentId, 7, expected);
    assert.equal(asked, expected);
  }
});

test("it is not registered where the relayer says so, and else not settled, in time", async () => {
  const reverts = refusal(500, "CALL_REVERTED");
  const denied = refusal(401, "INVALID_SIGNATURE");
  const gone = new Error("the page was left");
  for (const [error, ...answers] of [
    [reverts, reverts],
    [denied, denied],
    [denied, lost, unknown, denied],
    [limited, limited, unknown],
    [gone, lost, gone],
  ]) {
    assert.equal((await run(...answers)).outcome, error);
  }
  const { outcome } = await run(pending, {
    id: ID,
    state: "dropped",
    error: "Agent not active",
    code: "CALL_REVERTED",
  });
  assert.deepEqual([outcome.message, outcome.code], ["Agent not active", "CALL_REVERTED"]);
  const superseded = { id: ID, state: "reverted", code: "SUPERSEDED" };
  for (const answers of [
    [lost],
    [busy],
    [refusal(403, "")],
    [pending, limited],
    [pending, superseded],
    [refusal(409, "SUPERSEDED"), superseded],
    [pending, unknown, lost],
  ]) {
    const { outcome, waited } = await run(...answers);
    assert.ok(outcome instanceof Unsettled && outcome.id === ID, String(outcome));
    assert.ok(waited <= 122_000, `${waited} ms`);
  }
});

test("a relayer that takes a request and does not answer is given up in time", async () => {
  const { now } = performance;
  let passed = 0;
  performance.now = () => passed;
  const asks = async () => {
    passed += 60_000;
    throw lost;
  };
  const pause = async (milliseconds) => void (passed += milliseconds);
  try {
    const outcome = await settle({ relay: asks, state: asks }, ID, {}, pause).catch((error) => error);
    assert.ok(outcome instanceof Unsettled && outcome.id === ID, String(outcome));
    assert.ok(passed <= 200_000, `${passed} ms`);
  } finally {
    performance.now = now;
  }
});
