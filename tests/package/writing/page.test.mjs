// The package in a plain page: the visitor's wallet answers questions, and signs what the page's own check accepts and the
// relayer executes.

import assert from "node:assert/strict";

import { test } from "../../browser/harness/declared.mjs";
import { inAPage } from "../page.mjs";
import { OPTIONS, stack } from "../setting.mjs";

test("a visitor's wallet answers, signs, and what it signed is relayed", async () => {
  await inAPage({}, async (page, wallet) => {
    const relayer = (path) => fetch(`${stack.relayer}${path}`).then((answer) => answer.json());
    const { chainId, verifyingContract: forwarder } = await relayer("/domain");
    const { before, id, signed } = await page.evaluate(
      async ([options, rules]) => {
        const { Registry, checkRequest, forwardRequest, keccak256, registerAgent } = window.registry;
        const { ethereum } = window;
        const [from] = await ethereum.request({ method: "eth_requestAccounts" });
        const before = await new Registry({ ...options, rpc: ethereum }).kya(from);
        const data = registerAgent({
          haftungsperson: from,
          agentWallet: from,
          constitutionHash: keccak256("constitution"),
          capabilityHash: keccak256("capabilities"),
          operationalScope: "Registered from a plain page",
          parentAgentId: 0,
          selfModifying: false,
        });
        const request = { from, to: rules.registry, value: 0, gas: 500_000, nonce: 0, deadline: 0, data };
        const typed = JSON.stringify(forwardRequest(request, rules));
        const signature = await ethereum.request({ method: "eth_signTypedData_v4", params: [from, typed] });
        const signed = { request, signature };
        return { before, id: checkRequest(signed, rules), signed };
      },
      [OPTIONS, { chainId, forwarder, registry: stack.registry }],
    );
    assert.equal(before.isRegistered, false);

    const headers = { "content-type": "application/json" };
    const post = { method: "POST", headers, body: JSON.stringify(signed) };
    const executed = await (await fetch(`${stack.relayer}/relay`, post)).json();
    assert.deepEqual([executed.success, executed.id], [true, id], JSON.stringify(executed));

    const after = await page.evaluate(
      ([options, address]) => new window.registry.Registry({ ...options, rpc: window.ethereum }).kya(address),
      [OPTIONS, wallet.address],
    );
    assert.deepEqual([after.isRegistered, after.isCompliant, after.agent.agentId], [true, true, executed.agentId]);
  });
});
