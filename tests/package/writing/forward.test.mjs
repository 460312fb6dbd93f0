// Having a call relayed, from the form to the block.
//
// 1. Calldata is what ethers encodes.
// 2. Typed data signed by ethers is a signature that the package's check and the relayer accept, under one id; the agent is
//    registered, attests, and its verdict says so.
// 3. What the relayer refuses, the check refuses first: same status, code and message.
// 4. A field that breaks its rule is named with the rule.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { Interface, TypedDataEncoder, Wallet, keccak256 as ethersKeccak256, toUtf8Bytes } from "ethers";

import { test } from "../../browser/harness/declared.mjs";
import {
  OPTIONS, Registry, RegistryError, attestCompliance, checkRequest, forwardRequest, keccak256, registerAgent, stack,
} from "../setting.mjs";

const artifact = new URL("../../../contracts/artifacts/AgentRegistry.json", import.meta.url);
const { encodeFunctionData } = bound(new Interface(JSON.parse(readFileSync(artifact, "utf8")).abi));

function bound(contract) {
  return { encodeFunctionData: contract.encodeFunctionData.bind(contract) };
}

const ask = async (path, init) => (await fetch(`${stack.relayer}${path}`, init)).json();

/** Text as JSON, BigInts as decimal strings. */
const json = (value) => JSON.stringify(value, (_, member) => (typeof member === "bigint" ? `${member}` : member));

async function relay(body) {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${stack.relayer}/relay`, { method: "POST", headers, body: json(body) });
  return { status: answer.status, body: await answer.json() };
}

/** The relayer's rules, by what it says of itself. */
const [{ chainId, verifyingContract }, { limits }] = await Promise.all([ask("/domain"), ask("/status")]);
const rules = { chainId, forwarder: verifyingContract, registry: stack.registry, maxGas: limits.maxRequestGas };

const registration = (wallet) => ({
  haftungsperson: wallet.toLowerCase(),
  agentWallet: wallet,
  constitutionHash: keccak256("constitution"),
  capabilityHash: keccak256("Fähigkeiten 能力"),
  operationalScope: "Signs in a page — ページ",
  parentAgentId: 0,
  selfModifying: false,
});

const request = (wallet, nonce, data) => ({
  from: wallet, to: stack.registry, value: 0, gas: 500_000n, nonce, deadline: "0x0", data,
});

/** Signs as wallets do: what `eth_signTypedData_v4` is given, less the domain's type, which ethers derives. */
async function sign(key, request_) {
  const { domain, types: { EIP712Domain: _own, ...types }, message } = JSON.parse(
    JSON.stringify(forwardRequest(request_, rules)),
  );
  return { request: request_, signature: await key.signTypedData(domain, types, message) };
}

test("calldata is what ethers encodes", () => {
  const wallet = Wallet.createRandom().address;
  const arguments_ = { ...registration(wallet), parentAgentId: 2n ** 256n - 1n, selfModifying: true };
  const expected = encodeFunctionData("registerAgent", Object.values(arguments_));
  assert.equal(registerAgent(arguments_), expected);
  for (const id of [7, 7n, "7", "0x7"]) assert.equal(attestCompliance(id), encodeFunctionData("attestCompliance", [7]));
  for (const text of ["", "constitution", "能力 🥐"]) assert.equal(keccak256(text), ethersKeccak256(toUtf8Bytes(text)));
});

test("typed data is EIP-712's, whatever spelling its numbers had", () => {
  const wallet = Wallet.createRandom().address;
  const data = attestCompliance(1);
  const typed = forwardRequest(request(wallet, 2n ** 200n, data), { ...rules, chainId: BigInt(rules.chainId) });
  assert.deepEqual(JSON.parse(JSON.stringify(typed)), typed);
  assert.deepEqual(typed.message, {
    from: wallet, to: stack.registry, value: "0", gas: "500000", nonce: `${2n ** 200n}`, deadline: "0", data,
  });
  const { EIP712Domain, ...types } = typed.types;
  // ethers' own idea of what a wallet is asked to sign has the same types in the same order.
  const payload = TypedDataEncoder.getPayload(typed.domain, types, typed.message);
  assert.deepEqual(typed.types, payload.types);
  assert.equal(typed.primaryType, payload.primaryType);
  assert.ok(EIP712Domain.length === 4);
  assert.equal(typed.domain.chainId, rules.chainId);
});

test("what ethers signs the check and the relayer accept, and the agent is on the chain", async () => {
  const key = Wallet.createRandom();
  const registry = new Registry(OPTIONS);
  assert.equal((await registry.kya(key.address)).isRegistered, false);

  const send = async (nonce, data) => {
    assert.equal((await ask(`/nonce/${key.address}`)).next, nonce);
    const signed = await sign(key, request(key.address, nonce, data));
    const id = checkRequest(signed, rules);
    const { status, body } = await relay(signed);
    assert.equal(status, 200, JSON.stringify(body));
    assert.equal(body.id, id, "both know it by the same digest");
    return body;
  };
  const { agentId } = await send(0, registerAgent(registration(key.address)));
  const { agent, ...verdict } = await registry.kya(key.address);
  assert.deepEqual([verdict.isRegistered, verdict.isCompliant, agent.agentId], [true, true, agentId]);
  assert.equal(agent.operationalScope, "Signs in a page — ページ");
  const record = (await registry.agent(agentId)).agent;
  assert.equal(record.capabilityHash, keccak256("Fähigkeiten 能力"));

  await send(1, attestCompliance(agentId));
  assert.ok((await registry.kya(key.address)).agent.lastAttestation >= agent.lastAttestation);
});

test("what the relayer refuses the check refuses first, in the same words", async () => {
  const key = Wallet.createRandom();
  const other = Wallet.createRandom();
  const good = request(key.address, 0, attestCompliance(1));
  const signed = await sign(key, good);
  const cases = [
    {},
    { request: good },
    { signature: signed.signature },
    { ...signed, signature: "" },
    { ...signed, request: [] },
    { ...signed, request: { ...good, gas: "much" } },
    { ...signed, request: { ...good, from: "me" } },
    { ...signed, request: { ...good, data: "0x1" } },
    { ...signed, request: { ...good, deadline: 2n ** 48n } },
    { ...signed, signature: "0x1234" },
    { ...signed, signature: signed.signature.replace(/..$/, "1d") },
    { ...signed, request: { ...good, nonce: 1 } },
    { ...signed, request: { ...good, from: other.address } },
    await sign(key, { ...good, to: rules.forwarder }),
    await sign(key, { ...good, value: 1n }),
    await sign(other, good),
    await sign(key, { ...good, gas: BigInt(rules.maxGas) + 1n }),
    await sign(key, { ...good, deadline: 1 }),
  ];
  const codes = new Set();
  for (const body of cases) {
    const { status, body: refusal } = await relay(body);
    assert.throws(() => checkRequest(body, rules), (error) => {
      assert.ok(error instanceof RegistryError);
      assert.deepEqual({ error: error.message, code: error.code }, refusal);
      assert.equal(error.status, status);
      codes.add(error.code);
      return true;
    });
  }
  assert.deepEqual([...codes].sort(), [
    "DEADLINE_PASSED", "GAS_ABOVE_MAXIMUM", "INVALID_FIELD", "INVALID_SIGNATURE", "MISSING_REQUEST_OR_SIGNATURE",
    "TARGET_NOT_ALLOWED", "VALUE_NOT_SUPPORTED",
  ]);
  // Without the relayer's cap there is none.
  const { maxGas: _cap, ...uncapped } = rules;
  assert.match(checkRequest(await sign(key, { ...good, gas: 2n ** 60n }), uncapped), /^0x[0-9a-f]{64}$/);
});

test("a field that breaks its rule is named with the rule", () => {
  const wallet = Wallet.createRandom().address;
  const good = request(wallet, 0, "0x");
  const endless = {};
  endless.endless = endless;
  for (const [act, message] of [
    [() => registerAgent(), "Invalid registration: must be an object with each field once"],
    [() => registerAgent(endless), "Invalid registration: must be an object with each field once"],
    [() => registerAgent({ ...registration(wallet), constitutionHash: "0x12" }), "Invalid constitutionHash: must be 32 bytes, 0x and 64 hex digits"],
    [() => registerAgent({ ...registration(wallet), selfModifying: undefined }), "Invalid selfModifying: missing"],
    [() => attestCompliance(), "Invalid agentId: must be a whole number: a JSON number, a decimal string or a 0x-hex string"],
    [() => attestCompliance(-1n), "Invalid agentId: must not be negative"],
    [() => attestCompliance(2n ** 256n), "Invalid agentId: must fit in 256 bits"],
    [() => forwardRequest(undefined, rules), "Invalid request: must be a JSON object with each field once"],
    [() => forwardRequest({ ...good, nonce: 1.5 }, rules), "Invalid request.nonce: must be a whole number without fraction or exponent; write large values as strings"],
    [() => forwardRequest(good), "Invalid domain: must be an object with each field once"],
    [() => forwardRequest(good, { ...rules, forwarder: "0x" }), "Invalid forwarder: must be 0x followed by 40 hexadecimal digits"],
    [() => forwardRequest(good, { ...rules, chainId: 2 ** 53 }), "Invalid chainId: must fit in 53 bits"],
    [() => checkRequest({}, { ...rules, registry: undefined }), "Invalid registry: missing"],
    [() => checkRequest({}, { ...rules, maxGas: 2n ** 64n }), "Invalid maxGas: must fit in 64 bits"],
  ]) {
    assert.throws(act, (error) => {
      assert.deepEqual([error.message, error.code, error.status], [message, "INVALID_FIELD", 400]);
      return error instanceof RegistryError;
    });
  }
});
