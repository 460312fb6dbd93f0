// Two answers agree when every field but the clocks and endpoints is the same.
import assert from "node:assert/strict";
import { test } from "node:test";

import { compare } from "../src/compare";

const outcomes = (api, chain) => Object.fromEntries(compare(api, chain).map(({ path, outcome }) => [path, outcome]));

test("every field is compared, however deep", () => {
  const api = {
    total: 2,
    data: [
      { id: 1, status: "Active" },
      { id: 2n ** 60n, status: "Active" },
    ],
  };
  const chain = {
    total: 2,
    data: [
      { id: 1, status: "Revoked" },
      { id: 2n ** 60n, status: "Active" },
    ],
  };
  assert.deepEqual(outcomes(api, chain), {
    total: "agree",
    "data[0].id": "agree",
    "data[0].status": "differ",
    "data[1].id": "agree",
    "data[1].status": "agree",
  });
});

test("numbers and texts of the same digits differ", () => {
  assert.equal(outcomes({ a: 1 }, { a: "1" }).a, "differ");
  assert.equal(outcomes({ a: 2n ** 64n }, { a: String(2n ** 64n) }).a, "differ");
});

test("a field that one side lacks is a difference, a moving one too", () => {
  assert.deepEqual(outcomes({ a: 1, checkedAt: "x" }, { b: 1 }), { a: "differ", checkedAt: "differ", b: "differ" });
  assert.deepEqual(outcomes({ data: [] }, { data: [1] }), { data: "differ", "data[0]": "differ" });
  assert.deepEqual(outcomes({ agent: null }, { agent: { id: 1 } }), { agent: "differ", "agent.id": "differ" });
});

test("clocks and endpoints say nothing about truth", () => {
  assert.deepEqual(
    outcomes(
      { checkedAt: "a", chain: "x", compliance: { secondsSinceAttestation: 1 } },
      { checkedAt: "b", chain: "y", compliance: { secondsSinceAttestation: 3 } },
    ),
    {
      checkedAt: "moving",
      chain: "moving",
      "compliance.secondsSinceAttestation": "moving",
    },
  );
});

test("what agents call their currencies cannot hide a difference", () => {
  assert.deepEqual(outcomes({ byCurrency: { chain: 1, "a.rpc": 1 } }, { byCurrency: { chain: 2, "a.rpc": 2 } }), {
    "byCurrency.chain": "differ",
    'byCurrency["a.rpc"]': "differ",
  });
  assert.deepEqual(outcomes({ byCurrency: { a: { b: 1 } } }, { byCurrency: { "a.b": 1 } }), {
    "byCurrency.a.b": "differ",
    'byCurrency["a.b"]': "differ",
  });
});

test("a basis that one side does not know contradicts no other, and two that are known do", () => {
  const says = (basis, attestedAt) => ({
    data: [{ liability: { wallet: "0x1", basis, ...(attestedAt && { attestedAt }) } }],
  });
  const [basis, attestedAt] = ["data[0].liability.basis", "data[0].liability.attestedAt"];
  const outcome = (api, chain) => outcomes(api, chain);
  assert.equal(outcome(says("attested", "t"), says("unknown"))[basis], "moving");
  assert.equal(outcome(says("attested", "t"), says("unknown"))[attestedAt], "moving");
  assert.equal(outcome(says("unknown"), says("named"))[basis], "moving");
  assert.equal(outcome(says("attested", "t"), says("named"))[basis], "differ");
  assert.equal(outcome(says("attested", "t"), says("named"))[attestedAt], "differ");
  assert.equal(
    outcome({ liability: { basis: "registered" } }, { liability: { basis: "unknown" } })["liability.basis"],
    "moving",
  );
  const child = (parentBasis) => ({ liability: { wallet: "0x1", basis: "registered", parentBasis } });
  assert.equal(outcome(child("unknown"), child("named"))["liability.parentBasis"], "moving");
  assert.equal(outcome(child("registered"), child("named"))["liability.parentBasis"], "differ");
  const other = { liability: { wallet: "0x2", basis: "unknown" } };
  assert.equal(outcome(child("unknown"), other)["liability.wallet"], "differ");
});
