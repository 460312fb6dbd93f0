// The package in the other engine: the chain's verdict, the registry held in IndexedDB, and a signature that covers the content.

import assert from "node:assert/strict";

import { test } from "../../browser/harness/declared.mjs";
import { inFirefox } from "../../browser/harness/firefox.mjs";
import { servingThePage } from "../page.mjs";
import { OPTIONS, stack } from "../setting.mjs";

test("in Firefox verdicts are the chain's, the registry is held, and content is signed", () =>
  servingThePage((url) =>
    inFirefox(url, async (evaluate) => {
      const [setting, wallet] = [OPTIONS, stack.agents.kyoto.wallet].map((value) => JSON.stringify(value));
      const ready = `new Promise((resolve) => {
        const look = () => (document.title === "ready" ? resolve(true) : setTimeout(look, 50));
        look();
      })`;
      assert.equal(await evaluate(ready), true);
      assert.equal(await evaluate(`new registry.Registry(${setting}).kya(${wallet}).then(({ decision }) => decision)`), "provision");
      const held = `(async () => {
        const api = ${JSON.stringify(stack.snapshots)};
        const options = () => ({ api, store: new local.IndexedDbStore() });
        await new local.LocalKya(options()).update();
        const { decision } = await new local.LocalKya({ ...options(), fetch: () => Promise.reject() }).kya(${wallet});
        return decision;
      })()`;
      assert.equal(await evaluate(held), "provision");
      const signed = `signRequest(
        new Request("https://a.example/", { method: "POST", body: "hello", headers: { "content-type": "text/plain" } }),
        { address: ${wallet}, chainId: 1, signMessage: async () => new Uint8Array(65) },
      ).then(({ headers }) => headers.get("signature-input"))`;
      assert.match(await evaluate(signed), /"content-digest" "content-type"/);
    }),
  ));
