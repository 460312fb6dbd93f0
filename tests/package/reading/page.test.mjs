// The package in a plain page.
//
// 1. The page asks the chain itself and has the Worker's documents; nobody but page and node is asked.
// 2. What goes wrong is an error with code and status there too.

import assert from "node:assert/strict";

import { test } from "../../browser/harness/declared.mjs";
import { inAPage } from "../page.mjs";
import { OPTIONS, api, stack, still } from "../setting.mjs";

test("a plain page has the Worker's documents from the chain itself", async () => {
  await inAPage({}, async (page) => {
    const paths = [
      "/health",
      "/api/v1/stats/detailed",
      "/api/v1/agents/compliance",
      `/api/v1/agent/${stack.agents.atlas.id}/lineage`,
      `/api/v1/agent/${stack.agents.kyoto.id}`,
      // A plain verdict tells the past where somebody has just read the whole registry, as this Worker may have.
      `/api/v1/kya/${stack.agents.kyoto.wallet}?history=1`,
    ];
    for (const path of paths) {
      const text = await page.evaluate(
        ([options, path]) => new window.registry.Registry(options).getText(path),
        [OPTIONS, path],
      );
      assert.equal(still(text), still((await api(path)).text), path);
    }
    const revenue = await page.evaluate(
      ([options, id]) => new window.registry.Registry(options).revenue(id),
      [OPTIONS, stack.agents.ledger.id],
    );
    assert.ok(revenue.data.some(({ amount }) => amount === 9007199254740993n));
  });
});

test("what goes wrong in a page is an error with code and status", async () => {
  await inAPage({ faults: true }, async (page, wallet) => {
    wallet.rejects.add("eth_call");
    const errors = await page.evaluate(
      async ([options, silent]) => {
        const { Registry, RegistryError } = window.registry;
        const of = (promise) =>
          promise.catch((error) => [error instanceof RegistryError, error.message, error.code, error.status, error.cause?.code]);
        return [
          await of(new Registry({ ...options, rpc: silent }).stats()),
          await of(new Registry(options).agent(4711)),
          await of(new Registry({ ...options, rpc: window.ethereum }).stats()),
        ];
      },
      [OPTIONS, stack.silentRpc],
    );
    assert.deepEqual(errors, [
      [true, "RPC endpoint unreachable", "RPC_UNAVAILABLE", 500, undefined],
      [true, "Agent not found: 4711", "AGENT_NOT_FOUND", 404, undefined],
      [true, "RPC endpoint error 4001: User rejected the request.", "RPC_ERROR", 500, 4001],
    ]);
  });
});
