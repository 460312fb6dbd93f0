// What goes wrong is thrown as a RegistryError: an Error with code and status.
//
// 1. What the API refuses the package refuses in the same words.
// 2. An option that breaks its rule is named with the rule.
// 3. A node that is down, hangs, refuses or talks nonsense: one error each, and no longer than the page allows.
// 4. No part of an RPC URL but scheme and host is in an error.
// 5. Several endpoints: the next one answers. A chain id is held to.
// 6. A wallet's own error is the cause; a wallet on another chain is told from one on the right chain, question by question.
// 7. A timer that is no longer needed holds up nothing.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";

import { test } from "../../browser/harness/declared.mjs";
import { LocalKya, OPTIONS, Provider, Registry, RegistryError, api, kyaPrivately, stack, serving } from "../setting.mjs";

/** What a promise is rejected with; it has to be the package's. */
async function thrown(promise) {
  const error = await promise.then((value) => assert.fail(`answered ${value}`), (error) => error);
  assert.ok(error instanceof RegistryError, error.stack ?? String(error));
  assert.ok(error instanceof Error);
  assert.equal(error.name, "RegistryError");
  return error;
}

const kya = (options) => new Registry({ ...OPTIONS, ...options }).kya(stack.agents.kyoto.wallet);

test("what the API refuses is refused in the same words", async () => {
  const registry = new Registry(OPTIONS);
  const max = 2n ** 256n;
  for (const path of [
    "/", "", "/nope", "/api/v1", "/api/v1/agent", "/api/v2/stats",
    "/api/v1/agents?page=0", "/api/v1/agents?limit=x", "/api/v1/agents?status=active", "/api/v1/agents?page=1&page=2",
    "/api/v1/agent/x", "/api/v1/agent/-1", `/api/v1/agent/${max}`, "/api/v1/agent/1/revenue?offset=-1",
    "/api/v1/kya/0x12", "/api/v1/kya/0xF8BAF884A2a20d918e118b6de84D1B1bB02f5eB1",
    "/api/v1/agent/0", "/api/v1/agent/4711", "/api/v1/agent/4711/lineage", "/api/v1/agent/4711/revenue",
  ]) {
    const error = await thrown(registry.get(path));
    // Elsewhere than under /api the Worker serves files.
    const expected = path.startsWith("/api")
      ? JSON.parse((await api(path)).text)
      : { error: "Not found", code: "NOT_FOUND" };
    assert.deepEqual({ error: error.message, code: error.code }, expected, path);
    assert.equal(error.status, path.startsWith("/api") ? (await api(path)).status : 404, path);
    assert.equal((await thrown(registry.getText(path))).message, error.message);
  }
  const absent = await thrown(registry.agent(4711));
  assert.deepEqual([absent.message, absent.code, absent.status], ["Agent not found: 4711", "AGENT_NOT_FOUND", 404]);
});

test("a duration of a copy that is no number of seconds is refused: nothing would be too old, and no pause be made", async () => {
  const options = { api: stack.snapshots, fetch: () => assert.fail("nothing is asked") };
  const refused = (field) => ({ code: "INVALID_PARAMETER", message: new RegExp(`^Invalid ${field}: must be seconds from 0 to `) });
  const local = new LocalKya({ ...options, maxAgeSeconds: Infinity });
  for (const seconds of [NaN, -1, "60", null]) {
    for (const field of ["maxAgeSeconds", "maxBlockAgeSeconds", "timeoutSeconds"])
      assert.throws(() => new LocalKya({ ...options, [field]: seconds }), refused(field));
    const wallet = stack.agents.kyoto.wallet;
    await assert.rejects(kyaPrivately(wallet, { ...options, timeoutSeconds: seconds }), refused("timeoutSeconds"));
    for (const field of ["everySeconds", "checkEverySeconds"])
      for (const wrong of [seconds, Infinity]) assert.throws(() => local.run({ [field]: wrong }), refused(field));
  }
});

test("an option that breaks its rule is named with the rule", () => {
  const hex = "must be 0x followed by 40 hexadecimal digits";
  const rpc = "must be http:// or https:// URLs separated by commas, 8 at most, or an EIP-1193 provider";
  const seconds = "must be a whole number from 1 to 3600";
  for (const [options, message] of [
    [undefined, "Invalid options: must be an object"],
    ["http://127.0.0.1", "Invalid options: must be an object"],
    [{ registry: stack.registry }, `Invalid rpc: ${rpc}`],
    [{ ...OPTIONS, rpc: null }, `Invalid rpc: ${rpc}`],
    [{ ...OPTIONS, rpc: {} }, `Invalid rpc: ${rpc}`],
    [{ ...OPTIONS, rpc: { request: "no" } }, `Invalid rpc: ${rpc}`],
    [{ ...OPTIONS, rpc: "" }, `Invalid rpc: ${rpc}`],
    [{ ...OPTIONS, rpc: "ws://127.0.0.1" }, `Invalid rpc: ${rpc}`],
    [{ ...OPTIONS, rpc: "http://127.0.0.1,ftp://x" }, `Invalid rpc: ${rpc}`],
    [{ ...OPTIONS, rpc: "http://127.0.0.1,".repeat(9) }, `Invalid rpc: ${rpc}`],
    [{ rpc: stack.rpc }, `Invalid registry: ${hex}`],
    [{ ...OPTIONS, registry: "0x12" }, `Invalid registry: ${hex}`],
    [{ ...OPTIONS, registry: 12 }, `Invalid registry: ${hex}`],
    [{ ...OPTIONS, registry: "0xF8BAF884A2a20d918e118b6de84D1B1bB02f5eB1" }, /^Invalid registry: .*EIP-55/],
    [{ ...OPTIONS, multicall3: null }, `Invalid multicall3: ${hex}`],
    [{ ...OPTIONS, timeoutSeconds: 0 }, `Invalid timeoutSeconds: ${seconds}`],
    [{ ...OPTIONS, timeoutSeconds: 1.5 }, `Invalid timeoutSeconds: ${seconds}`],
    [{ ...OPTIONS, timeoutSeconds: "10" }, `Invalid timeoutSeconds: ${seconds}`],
    [{ ...OPTIONS, timeoutSeconds: 2 ** 31 }, `Invalid timeoutSeconds: ${seconds}`],
    [{ ...OPTIONS, fetch: "fetch" }, "Invalid fetch: must be a function"],
    [
      { ...OPTIONS, rpc: "http://127.0.0.1, http://127.0.0.2" },
      "Invalid chainId: must be given where rpc names several endpoints: it is the chain they all have to be on",
    ],
    [{ ...OPTIONS, chainId: "mainnet" }, "Invalid chainId: must be a whole number"],
    [{ ...OPTIONS, chainId: -1 }, "Invalid chainId: must be a whole number"],
  ]) {
    assert.throws(() => new Registry(options), (error) => {
      assert.ok(error instanceof RegistryError);
      assert.deepEqual([error.code, error.status], ["INVALID_PARAMETER", 400]);
      assert.ok(message instanceof RegExp ? message.test(error.message) : message === error.message, error.message);
      return true;
    });
  }
});

test("a node that is down is one clear error", async () => {
  const error = await thrown(kya({ rpc: stack.silentRpc }));
  assert.deepEqual(
    [error.message, error.code, error.status],
    ["RPC endpoint unreachable", "RPC_UNAVAILABLE", 500],
  );
});

test("a node that hangs is left when the time is over, its request aborted", async () => {
  let closed;
  const aborted = new Promise((done) => (closed = done));
  await serving((request) => request.socket.on("close", closed), async (rpc) => {
    const began = performance.now();
    const error = await thrown(kya({ rpc, timeoutSeconds: 1 }));
    assert.deepEqual([error.code, error.status], ["RPC_UNAVAILABLE", 500]);
    assert.match(error.message, /within 1 s$/);
    assert.ok(performance.now() - began < 12_000, "well before the default's 15 s");
    await aborted;
  });
  const never = { request: () => new Promise(() => {}) };
  assert.match((await thrown(kya({ rpc: never, timeoutSeconds: 1 }))).message, /within 1 s$/);
});

test("a node that hangs in the middle of its answer is left too", async () => {
  const half = (_request, response) => response.writeHead(200).write('{"jsonrpc":"2.0",');
  await serving(half, async (rpc) => {
    assert.match((await thrown(kya({ rpc, timeoutSeconds: 1 }))).message, /within 1 s$/);
  });
});

test("a node that refuses or talks nonsense is one clear error", async () => {
  const node = (status, body) => (_request, response) => response.writeHead(status).end(body);
  for (const [status, body, message, code] of [
    [200, "<html>", "RPC endpoint gave a malformed answer", "RPC_ERROR"],
    [200, '{"jsonrpc":"2.0","id":1,"result":"0x"}', /^No Multicall3 at 0xcA11bde0/, "REGISTRY_ERROR"],
    [401, "key?", "RPC endpoint answered HTTP 401", "RPC_UNAVAILABLE"],
    [429, "slow down", "RPC endpoint answered HTTP 429", "RPC_UNAVAILABLE"],
    [503, "", "RPC endpoint answered HTTP 503", "RPC_UNAVAILABLE"],
    [200, '{"id":1,"error":{"code":-32601,"message":"no such method"}}', "RPC endpoint error -32601: no such method", "RPC_ERROR"],
  ]) {
    await serving(node(status, body), async (rpc) => {
      const error = await thrown(kya({ rpc }));
      assert.ok(message instanceof RegExp ? message.test(error.message) : message === error.message, error.message);
      assert.deepEqual([error.code, error.status], [code, 500], error.message);
    });
  }
});

test("a page's own fetch may do what it likes", async () => {
  const asked = [];
  const recorder = async (url, init) => {
    asked.push([url, init.method, init.headers.get("content-type")]);
    return fetch(url, init);
  };
  assert.equal((await kya({ fetch: recorder })).isRegistered, true);
  assert.deepEqual(asked, [[stack.rpc, "POST", "application/json"]]);
  for (const own of [
    () => { throw new Error("no"); },
    () => undefined,
    async () => null,
    async () => "text",
    async () => ({ status: 200 }),
    async () => ({ status: 200, arrayBuffer: async () => { throw new Error("no"); } }),
  ]) {
    const error = await thrown(kya({ fetch: own, timeoutSeconds: 1 }));
    assert.equal(error.code, "RPC_UNAVAILABLE", `${own}: ${error.message}`);
  }
});

test("no part of an RPC URL but scheme and host is in an error or a document", async () => {
  const secrets = ["us3rname", "passw0rd", "k3yk3yk3y", "t0k3nt0k3n"];
  const withSecrets = (url) => `${url.replace("//", `//${secrets[0]}:${secrets[1]}@`)}/v2/${secrets[2]}?token=${secrets[3]}`;
  const clean = (text) => secrets.forEach((secret) => assert.ok(!text.includes(secret), text));

  const quoting = (request, response) => {
    const message = `no project at ${request.url}, not even for ${secrets[0]} with ${secrets[1]}`;
    response.end(JSON.stringify({ id: 1, error: { code: -32000, message } }));
  };
  await serving(quoting, async (url) => {
    const error = await thrown(kya({ rpc: withSecrets(url) }));
    assert.match(error.message, /^RPC endpoint error -32000: no project at/);
    clean(`${error.message} ${error.stack} ${JSON.stringify(error)} ${error.cause}`);
  });
  const error = await thrown(kya({ rpc: withSecrets(stack.silentRpc) }));
  clean(`${error.message} ${error.stack} ${JSON.stringify(error)} ${error.cause}`);

  // The node gets them all the same.
  const asked = [];
  const recorder = (url, init) => {
    asked.push([url, init.headers.get("authorization")]);
    return fetch(stack.rpc, init);
  };
  const document = await new Registry({ ...OPTIONS, rpc: withSecrets(stack.rpc), fetch: recorder }).getText("/health");
  assert.equal(JSON.parse(document).rpc, stack.rpc);
  clean(document);
  const basic = `Basic ${Buffer.from(`${secrets[0]}:${secrets[1]}`).toString("base64")}`;
  assert.deepEqual(asked, [[`${stack.rpc}/v2/${secrets[2]}?token=${secrets[3]}`, basic]]);
});

test("of several endpoints the next one answers, and all have to be on the chain", async () => {
  const rpc = `${stack.silentRpc}, ${stack.rpc}`;
  assert.equal((await kya({ rpc, chainId: 31337 })).isRegistered, true);
  assert.equal((await kya({ chainId: 31337 })).isRegistered, true);
  assert.equal((await kya({ chainId: 31337n, rpc: new Provider() })).isRegistered, true);
  for (const rpc of [stack.rpc, new Provider()]) {
    const error = await thrown(kya({ rpc, chainId: "1" }));
    assert.deepEqual([error.message, error.status], ["RPC endpoint is on chain 31337, not 1", 500]);
  }
});

test("a wallet's own error is the cause", async () => {
  for (const [what, message, code] of [
    [Object.assign(new Error("User rejected the request."), { code: 4001 }), "RPC endpoint error 4001: User rejected the request.", "RPC_ERROR"],
    [{ code: 4900, message: "Disconnected" }, "RPC endpoint error 4900: Disconnected", "RPC_ERROR"],
    [{ code: "ACTION", message: 7, data: { toJSON() { throw new Error("no"); } } }, "RPC endpoint error 0: [object Object]", "RPC_ERROR"],
    ["no", "RPC endpoint error 0: no", "RPC_ERROR"],
    [null, "RPC endpoint error 0: null", "RPC_ERROR"],
  ]) {
    for (const request of [() => { throw what; }, async () => { throw what; }]) {
      const error = await thrown(kya({ rpc: { request } }));
      assert.deepEqual([error.message, error.code, error.status], [message, code, 500]);
      assert.equal(error.cause, what);
    }
  }
  // Answers that are none are nonsense, as a node's would be; no header at all is a block that it does not have.
  for (const [request, code] of [
    [() => undefined, "RPC_UNAVAILABLE"],
    [async () => 7, "RPC_ERROR"],
    [async () => 7n, "RPC_UNAVAILABLE"],
    [async () => ({}), "RPC_ERROR"],
  ]) {
    assert.equal((await thrown(kya({ rpc: { request } }))).code, code, String(request));
  }
});

test("what a node takes back is asked again of a wallet too", async () => {
  const provider = new Provider();
  let faults = 2;
  const request = (call) => {
    if (call.method === "eth_call" && faults > 0) {
      faults -= 1;
      throw { code: -32000, message: "header not found" };
    }
    return provider.request(call);
  };
  const list = await new Registry({ ...OPTIONS, rpc: { request } }).compliance();
  assert.equal(faults, 0);
  assert.equal(list.total, list.data.length);
});

test("a wallet may change its chain between questions", async () => {
  const wallet = new Provider();
  const registry = new Registry({ ...OPTIONS, rpc: wallet });
  const { totalAgents } = await registry.stats();
  wallet.rpc = stack.otherRpc;
  const error = await thrown(registry.stats());
  assert.match(error.message, /^No contract at 0x/);
  assert.equal(error.status, 500);
  wallet.rpc = stack.rpc;
  assert.equal((await registry.stats()).totalAgents, totalAgents);
});

test("a timer that is no longer needed holds up nothing", async () => {
  const program = `
    import init, { Registry } from ${JSON.stringify(new URL("../../../browser/pkg/node.js", import.meta.url).href)};
    await init();
    const options = { ...${JSON.stringify(OPTIONS)}, timeoutSeconds: 3600 };
    console.log((await new Registry(options).stats()).totalAgents);
  `;
  const arguments_ = ["--input-type=module", "--eval", program];
  const { stdout } = await promisify(execFile)(process.execPath, arguments_, { timeout: 60_000 });
  assert.equal(Number(stdout), (await new Registry(OPTIONS).stats()).totalAgents);
});
