// Private lookups at a service that answers something else: no verdict of another registry, and an error in place of a page.

import assert from "node:assert/strict";

import { test } from "../../browser/harness/declared.mjs";
import { RegistryError, kyaPrivately } from "../setting.mjs";

const WALLET = "0x000000000000000000000000000000000000dEaD";
const code = (code) => (error) => error instanceof RegistryError && error.code === code;

test("a private lookup takes no range of another chain or registry than is asked for, and no page for a document", async () => {
  const [registry, other] = ["aa", "bb"].map((byte) => `0x${byte.repeat(20)}`);
  const lookUp = (options, name) => {
    const fetch = async (url) => {
      const document = url.endsWith("/stats") ? { totalAgents: 600 } : { data: [], total: 31, asOf: { blockNumber: 1 } };
      return Response.json(document, { headers: name === undefined ? {} : { "kya-registry": name } });
    };
    return kyaPrivately(WALLET, { api: "https://named.example", fetch, ...options });
  };
  for (const options of [{}, { chainId: 1 }, { registry: registry.toUpperCase().replace("X", "x") }, { chainId: "1", registry }])
    assert.equal((await lookUp(options, `eip155:1:${registry}`)).verdict.decision, "deny");
  assert.equal((await lookUp({})).verdict.decision, "deny");
  for (const [options, name] of [
    [{ chainId: 84_532 }, `eip155:1:${registry}`],
    [{ chainId: 1, registry: other }, `eip155:1:${registry}`],
    [{ registry: other }, `eip155:1:${registry}`],
    [{ registry }, undefined],
    [{ chainId: 1 }, `eip155:1:${registry}00`],
  ])
    await assert.rejects(lookUp(options, name), code("INVALID_SNAPSHOT"));
  for (const answer of ["<!doctype html>", "null", ""])
    await assert.rejects(kyaPrivately(WALLET, { api: "https://page.example", fetch: async () => new Response(answer) }), code("UNREACHABLE"));
});
