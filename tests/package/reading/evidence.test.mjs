// Evidence in the package: what the Worker makes is verified in Node and in a plain page, without a network.
//
// 1. Every kind of verdict is proved by the hash that the node itself gives its block.
// 2. A document that was changed, or is about something else, is refused with the reason.
// 3. A plain page verifies the same document.

import assert from "node:assert/strict";

import { test } from "../../browser/harness/declared.mjs";
import { inAPage } from "../page.mjs";
import { OPTIONS, Registry, RegistryError, api, stack, verifyEvidence } from "../setting.mjs";

const NOBODY = "0x000000000000000000000000000000000000dEaD";
const { kyoto, ledger, forgetful, paused, impostor } = stack.agents;

/** Each kind of verdict, and a wallet of it. */
const KINDS = [
  ["provision", kyoto.wallet],
  ["provision", ledger.wallet],
  ["request_renewal", forgetful.wallet],
  ["request_renewal", paused.wallet],
  ["deny", impostor.wallet],
  ["deny", NOBODY],
];

/** The hash that the node has for a block. */
async function hashOf(number) {
  const params = [`0x${number.toString(16)}`, false];
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "eth_getBlockByNumber", params });
  const headers = { "content-type": "application/json" };
  return (await (await fetch(stack.rpc, { method: "POST", headers, body })).json()).result.hash;
}

async function evidenceOf(wallet) {
  const { status, text } = await api(`/api/v1/kya/${wallet}?evidence=1`);
  assert.equal(status, 200, text);
  const document = JSON.parse(text);
  return { text, document, blockHash: await hashOf(document.verdict.asOf.blockNumber) };
}

const refused = (reason) => (error) =>
  error instanceof RegistryError && error.code === "INVALID_EVIDENCE" && reason.test(error.message);

test("every kind of verdict is proved, as text and as an object", async () => {
  for (const [decision, wallet] of KINDS) {
    const { text, document, blockHash } = await evidenceOf(wallet);
    for (const given of [text, document]) {
      const known = { blockHash, wallet, registry: stack.registry, chainId: 31337 };
      const { verdict, block, registry, chainId, forwarder } = verifyEvidence(given, known);
      assert.equal(forwarder, document.forwarder);
      assert.match(forwarder, /^0x[0-9a-fA-F]{40}$/);
      assert.deepEqual(verdict, document.verdict);
      assert.equal(verdict.decision, decision, wallet);
      assert.equal(block.hash, blockHash);
      assert.deepEqual([block.number, registry, chainId], [verdict.asOf.blockNumber, stack.registry, 31337]);
    }
  }
});

test("who makes evidence is said where it is not made", async () => {
  await assert.rejects(
    new Registry(OPTIONS).get(`/api/v1/kya/${kyoto.wallet}?evidence=1`),
    (error) => error.code === "INVALID_PARAMETER" && /evidence: must be 0 here/.test(error.message),
  );
});

test("what was changed or is about something else is refused with the reason", async () => {
  const { document, text, blockHash } = await evidenceOf(kyoto.wallet);
  const changed = (change) => {
    const copy = structuredClone(document);
    change(copy);
    return copy;
  };
  for (const [given, options, reason] of [
    [text, { blockHash: `0x${"1".repeat(64)}` }, /about block/],
    [text, { blockHash, chainId: 1 }, /about chain 31337, not about 1/],
    [text, { blockHash, wallet: NOBODY }, /about wallet/],
    [text, { blockHash, registry: NOBODY }, /about registry/],
    [text, { blockHash, forwarder: NOBODY }, /trusts the forwarder 0x/],
    [text.slice(1), { blockHash }, /no evidence/],
    [undefined, { blockHash }, /no evidence/],
    [changed((copy) => (copy.verdict.decision = "deny")), { blockHash }, /verdict\.decision/],
    [changed((copy) => copy.storageProof[3].proof.pop()), { blockHash }, /storageProof\[3\].*cut short/],
    [changed((copy) => copy.storageProof.reverse()), { blockHash }, /storageProof\[0\] should be about slot/],
    [changed((copy) => (copy.layout.walletToAgent = "0x4")), { blockHash }, /layout is not one/],
  ]) {
    assert.throws(() => verifyEvidence(given, options), refused(reason));
  }
  for (const options of [undefined, {}, { blockHash: "0x12" }, { blockHash: blockHash.slice(2) }]) {
    assert.throws(
      () => verifyEvidence(text, options),
      (error) => error.code === "INVALID_PARAMETER" && /blockHash/.test(error.message),
    );
  }
});

test("a plain page verifies the same documents", async () => {
  const { text, document, blockHash } = await evidenceOf(forgetful.wallet);
  await inAPage({}, async (page) => {
    const proved = await page.evaluate(
      ([text, blockHash]) => window.verifyEvidence(text, { blockHash }).verdict,
      [text, blockHash],
    );
    assert.deepEqual(proved, document.verdict);
    const reason = await page.evaluate(
      ([text, blockHash]) => {
        try {
          window.verifyEvidence(text.replace('"isCompliant":false', '"isCompliant":true'), { blockHash });
        } catch (error) {
          return `${error.code}: ${error.message}`;
        }
      },
      [text, blockHash],
    );
    assert.match(reason, /^INVALID_EVIDENCE: verdict\.isCompliant/);
  });
});
