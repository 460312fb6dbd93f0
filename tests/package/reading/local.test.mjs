// The registry held locally, and private lookups.
//
// 1. Verdicts are the Worker's without a network; what is too old is an error, and an update fetches only what is not there.
// 2. They are there right after a restart: from a folder in Node, from IndexedDB in a page.
// 3. An API that lies about one agent is caught by spot checks against the visitor's own endpoint.
// 4. A private lookup sends a range, and never the wallet; how small a range is the caller's rule.
// 5. A service that goes back to an older block is told, and that block adopted only in place of one that is too old.
// 6. A clock that goes back or is behind makes nothing younger; a damaged store is mended; a service that is silent or leads
//    elsewhere is an error in time.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

import { concat, getBytes, keccak256, toBeHex } from "ethers";

import { test } from "../../browser/harness/declared.mjs";
import { inAPage } from "../page.mjs";
import { FolderStore, LocalKya, OPTIONS, Registry, RegistryError, api, fetchOnce, kyaPrivately, serving, stack, still } from "../setting.mjs";

const NOBODY = "0x000000000000000000000000000000000000dEaD";
const AGENTS = Object.values(stack.agents);
const WALLETS = [...AGENTS.map(({ wallet }) => wallet), NOBODY];

/** A `fetch` of another client each time, which notes what is asked for. */
function noting(change = (bytes) => bytes) {
  const asked = [];
  const ask = async (url, init) => {
    const path = url.slice(stack.snapshots.length);
    asked.push(path);
    const client = `2001:db8:${asked.length.toString(16)}:${process.pid.toString(16)}::2`;
    const response = await fetchOnce(url, { ...init, headers: { ...init?.headers, "cf-connecting-ip": client } });
    if (!path.startsWith("/api/v1/snapshot")) return response;
    const { status, headers } = response;
    return new Response(change(new Uint8Array(await response.arrayBuffer()), path), { status, headers });
  };
  return { asked, fetch: ask };
}

const noNetwork = () => assert.fail("no network is needed");

const code = (code) => (error) => error instanceof RegistryError && error.code === code;

/** Whether only the chain can tell: the index cuts a scope as long as that. */
const isLong = ({ agent }) => Buffer.byteLength(agent?.operationalScope ?? "") >= 253;

/** Holds each verdict against the Worker's; that of a long scope is an error of this code. */
async function isTheWorkers(kya, codeOfLong = "ASK_CHAIN") {
  let long = 0;
  for (const wallet of WALLETS) {
    const { text, document } = await api(`/api/v1/kya/${wallet}?history=1`);
    if (isLong(document)) {
      await assert.rejects(kya(wallet), code(codeOfLong));
      long += 1;
    } else {
      assert.equal(still(JSON.stringify(await kya(wallet))), still(text), wallet);
    }
  }
  assert.ok(long > 0 && long < 5, `${long} wallets of long scopes`);
}

test("verdicts are the Worker's without a network, and there is none in place of an old one", async () => {
  const { asked, fetch } = noting();
  const local = new LocalKya({ api: stack.snapshots, chainId: 31337, registry: stack.registry, fetch });
  await assert.rejects(local.kya(NOBODY), code("STALE"));
  assert.equal(local.ageSeconds, undefined);
  const { shards, agents, requests } = await local.update();
  assert.ok(shards >= 1 && requests === 2 && agents >= AGENTS.length, `${shards} shards, ${requests} requests, ${agents} agents`);
  await isTheWorkers((wallet) => local.kya(wallet));
  assert.equal(asked.length, 2, "no verdict was asked for");
  assert.ok(local.ageSeconds < 60);
  assert.deepEqual((await local.update()).shards, 0);
  await assert.rejects(local.kya("0x12"), code("INVALID_PARAMETER"));

  const strict = new LocalKya({ api: stack.snapshots, maxAgeSeconds: 0, timeoutSeconds: 60.0005, fetch });
  await strict.update();
  await assert.rejects(strict.kya(NOBODY), code("STALE"));
  const other = new LocalKya({ api: stack.snapshots, chainId: 1, fetch });
  await assert.rejects(other.update(), code("INVALID_SNAPSHOT"));
});

test("an update that has adopted a registry is one, though a later round gets no answer", async () => {
  const { fetch: ask } = noting();
  let manifests = 0;
  const fetch = async (url, init) => {
    if (url.endsWith("/api/v1/snapshot")) manifests += 1;
    return manifests > 1 ? new Response(null, { status: 503 }) : ask(url, init);
  };
  // Each round counts as one that took long.
  const local = new LocalKya({ api: stack.snapshots, maxAgeSeconds: 0, fetch });
  const { block, agents } = await local.update();
  assert.ok(block > 0 && agents >= AGENTS.length && manifests === 2, `${agents} agents of block ${block}, ${manifests} manifests`);
  await assert.rejects(local.update(), code("UNREACHABLE"));
});

test("a folder has the registry after a restart", async () => {
  const folder = await mkdtemp(join(tmpdir(), "local-kya-"));
  try {
    const options = { api: stack.snapshots, fetch: noting().fetch };
    await new LocalKya({ ...options, store: new FolderStore(folder) }).update();
    const local = new LocalKya({ ...options, store: new FolderStore(folder), fetch: noNetwork });
    await isTheWorkers((wallet) => local.kya(wallet));
    assert.ok(local.ageSeconds < 60);
    const again = new LocalKya({ ...options, store: new FolderStore(folder) });
    assert.equal((await again.update()).shards, 0);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("bytes that were changed are refused, and an interrupted update goes on", async () => {
  let flips = true;
  const { fetch } = noting((bytes, path) => {
    if (flips && path.includes("/shards")) bytes[bytes.length >> 1] ^= 1;
    return bytes;
  });
  const local = new LocalKya({ api: stack.snapshots, fetch });
  await assert.rejects(local.update(), code("INVALID_SNAPSHOT"));
  await assert.rejects(local.kya(NOBODY), code("STALE"));
  flips = false;
  await local.update();
  await isTheWorkers((wallet) => local.kya(wallet));
});

/** Seals bytes of a snapshot anew, in place. */
function sealed(bytes) {
  const content = concat([toBeHex(31337, 8), stack.registry, bytes.subarray(0, -8)]);
  bytes.set(getBytes(keccak256(content)).subarray(0, 8), bytes.length - 8);
  return bytes;
}

/** Where a manifest's shards, its segments and its recent changes begin. */
function partsOf(manifest) {
  const view = new DataView(manifest.buffer, manifest.byteOffset, manifest.length);
  const segments = 149 + 9 * view.getUint32(145) + 4;
  return { view, shards: 149, segments, recent: segments + 15 * view.getUint32(segments - 4) };
}

/** A manifest or bundle in which the wallet's agent has another status, and all seals say that all is well. */
function withALie(bytes, path, wallet) {
  const files = [];
  if (path === "/api/v1/snapshot") files.push(bytes.subarray(partsOf(bytes).recent, -8));
  else {
    for (let begin = 0, length; begin < bytes.length; begin += 4 + length) {
      length = new DataView(bytes.buffer, begin).getUint32(0);
      files.push(bytes.subarray(begin + 4, begin + 4 + length));
    }
  }
  for (const file of files.filter(({ length }) => length > 0)) {
    const view = new DataView(file.buffer, file.byteOffset, file.length);
    const starts = Array.from({ length: view.getUint32(24) }, (_, index) => 28 + 24 * index);
    const at = starts.find((start) => Buffer.compare(file.subarray(start, start + 20), getBytes(wallet)) === 0);
    // A record of its agent, and not of one that another file tells of.
    if (at === undefined || (file[view.getUint32(at + 20)] & 1) === 0 || file[view.getUint32(at + 20)] === 3) continue;
    file[view.getUint32(at + 20) + 57] ^= 1;
    sealed(file);
  }
  return path === "/api/v1/snapshot" ? sealed(bytes) : bytes;
}

test("an API that lies about one agent is caught by spot checks", async () => {
  const { wallet } = stack.agents.kyoto;
  const wallets = [];
  for (const asked of WALLETS) if (!isLong((await api(`/api/v1/kya/${asked}`)).document)) wallets.push(asked);
  const chain = new Registry(OPTIONS);
  const honest = new LocalKya({ api: stack.snapshots, chain, fetch: noting().fetch });
  await honest.update();
  for (const asked of wallets) assert.deepEqual(await honest.spotCheck(asked), { agrees: true, wallet: asked });

  const { fetch } = noting((bytes, path) => withALie(bytes, path, wallet));
  const local = new LocalKya({ api: stack.snapshots, chain, fetch });
  await local.update();
  assert.equal((await local.kya(wallet)).decision, "request_renewal", "a lie is believed at first");
  let checks = 0;
  let found;
  do {
    for (const asked of wallets) await local.kya(asked);
    found = await local.spotCheck();
    checks += 1;
    assert.ok(checks < 2_000, "a random one of the wallets asked for is checked");
  } while (found.agrees);
  console.log(`caught after ${checks} checks, of ${wallets.length} wallets that are asked for in turn`);
  assert.deepEqual([found.wallet, found.held.agent.status, found.chain.agent.status], [wallet, "Suspended", "Active"]);
  assert.equal(JSON.parse(found.evidence).verdict.decision, "provision", "what the API itself proves");
});

test("a spot check is of a wallet that had a verdict, whatever else was asked for", async () => {
  const local = new LocalKya({ api: stack.snapshots, chain: { kya: async () => verdict }, fetch: noting().fetch });
  await local.update();
  const verdict = await local.kya(NOBODY);
  // Which one is checked is left to chance.
  for (let round = 0; round < 20; round += 1) {
    await assert.rejects(local.kya("0x12"), code("INVALID_PARAMETER"));
    await local.kya(NOBODY);
    assert.equal((await local.spotCheck()).wallet, NOBODY);
  }
});

test("a private lookup never sends the wallet, and a range as large as the caller wants", async () => {
  for (const [agents, digits] of [[0, 0], [480, 1], [99_999_999_999, 1]]) {
    const { asked, fetch: ask } = noting();
    // The count is asked for once of each API.
    const api = `https://${agents}.example`;
    const fetch = async (url, init) => {
      const path = url.slice(api.length);
      if (agents === 0 || path !== "/api/v1/stats") return ask(stack.snapshots + path, init);
      asked.push(path);
      return Response.json({ totalAgents: agents });
    };
    const options = { api, fetch };
    await isTheWorkers(async (wallet) => {
      const { verdict, sent, shared } = await kyaPrivately(wallet, options);
      assert.ok(digits > 0 ? verdict.agent === null || shared > 0 : shared >= 30, `shared by ${shared}`);
      const range = `/api/v1/kya/range/${keccak256(wallet).slice(2, 2 + digits)}`;
      assert.equal(sent, digits > 0 ? range : "/api/v1/snapshot");
      return verdict;
    }, digits > 0 ? "TOO_LARGE" : "ASK_CHAIN");
    assert.equal(asked.filter((path) => path.endsWith("/stats")).length, 1);
    assert.ok(WALLETS.every((wallet) => !asked.join().toLowerCase().includes(wallet.slice(2).toLowerCase())));
  }
  await assert.rejects(kyaPrivately("0x12", { api: stack.snapshots, fetch: noNetwork }), code("INVALID_PARAMETER"));
});

test("a store that was damaged is mended by an update", async () => {
  const folder = await mkdtemp(join(tmpdir(), "local-kya-"));
  try {
    const options = () => ({ api: stack.snapshots, fetch: noting().fetch, store: new FolderStore(folder) });
    await new LocalKya(options()).update();
    const manifest = join(folder, "manifest");
    const whole = await readFile(manifest);
    const flipped = Buffer.from(whole);
    flipped[whole.length >> 1] ^= 1;
    const later = Buffer.from(whole);
    later.writeBigUInt64BE(2n ** 63n);
    for (const bytes of [whole.subarray(0, 4), Buffer.alloc(0), flipped, later, Buffer.from("another version of the format")]) {
      await writeFile(manifest, bytes);
      const local = new LocalKya(options());
      await assert.rejects(local.kya(NOBODY), code("STALE"));
      assert.equal((await local.update()).shards, 0, "the shards are kept");
      await local.kya(NOBODY);
    }
    const [shard] = (await readdir(folder)).filter((name) => name !== "manifest");
    await writeFile(join(folder, shard), "x");
    const local = new LocalKya(options());
    const verdicts = await Promise.allSettled(WALLETS.map((wallet) => local.kya(wallet)));
    assert.ok(verdicts.some(({ reason }) => /damaged/.test(reason?.message)));
    assert.equal((await local.update()).shards, 1);
    const leftOver = join(folder, "a.new");
    await writeFile(leftOver, "x");
    await utimes(leftOver, 1, 1);
    await new FolderStore(folder).read();
    assert.ok(!(await readdir(folder)).includes("a.new"), "what a crash left is removed");
    // Several programs at one folder.
    await Promise.all([1, 2, 3].map(() => new LocalKya({ ...options(), chainId: 31337 }).update()));
  } finally {
    await rm(folder, { recursive: true });
  }
});

/** A manifest of a later block, with the same shards. */
function later(manifest, blocks) {
  const { view, shards, segments, recent } = partsOf(manifest);
  view.setBigUint64(33, view.getBigUint64(33) + BigInt(blocks));
  // Of each shard and segment it has how many blocks ago that changed.
  for (let at = shards + 1; at < segments - 4; at += 9) view.setUint32(at, view.getUint32(at) + blocks);
  for (let at = segments + 7; at < recent; at += 15) view.setUint32(at, view.getUint32(at) + blocks);
  return sealed(manifest);
}

test("an older block is told, and adopted only in place of one that is too old", async () => {
  const folder = await mkdtemp(join(tmpdir(), "local-kya-"));
  try {
    let blocks = 1_000;
    const { fetch } = noting((bytes, path) => (path === "/api/v1/snapshot" && blocks > 0 ? later(bytes, blocks) : bytes));
    const open = (more) => new LocalKya({ api: stack.snapshots, fetch, store: new FolderStore(folder), ...more });
    const local = open();
    const { block } = await local.update();
    blocks = 0;
    await assert.rejects(local.update(), code("WENT_BACK"));
    await assert.rejects(open().update(), code("WENT_BACK"), "after a restart, too");
    assert.equal((await local.kya(NOBODY)).asOf.blockNumber, block);
    assert.ok((await open({ maxAgeSeconds: 0 }).update()).block < block);
  } finally {
    await rm(folder, { recursive: true });
  }
});

/** A `fetch` of an API in which each shard has changed so many blocks later. */
function changing() {
  const change = { blocks: 0 };
  const { fetch: ask } = noting((bytes, path) => {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const moved = (at) => view.setBigUint64(at, view.getBigUint64(at) + BigInt(change.blocks));
    if (path.includes("/shards")) {
      for (let at = 0; at < bytes.length; ) {
        const length = view.getUint32(at);
        moved(at + 16);
        sealed(bytes.subarray(at + 4, at + 4 + length));
        at += 4 + length;
      }
      return bytes;
    }
    moved(33);
    return sealed(bytes);
  });
  const before = (_, block) => `-${(BigInt(`0x${block}`) - BigInt(change.blocks)).toString(16).padStart(16, "0")}`;
  return { change, fetch: (url, init) => ask(url.replaceAll(/-([0-9a-f]{16})(?=[0-9a-f]{8}(,|$))/g, before), init) };
}

test("of two that share a store, the one that has not updated yet goes on with what the other has adopted", async () => {
  const folder = await mkdtemp(join(tmpdir(), "local-kya-"));
  try {
    const { change, fetch } = changing();
    const [one, other] = [1, 2].map(() => new LocalKya({ api: stack.snapshots, fetch, store: new FolderStore(folder) }));
    const { block } = await one.update();
    await other.update();
    change.blocks = 1_000;
    assert.ok((await one.update()).shards > 0, "each shard has another version");
    assert.equal((await other.kya(NOBODY)).asOf.blockNumber, block + 1_000);
    assert.ok(other.ageSeconds < 60);
  } finally {
    await rm(folder, { recursive: true });
  }
});

/** A manifest that its API last confirmed at that unix millisecond. */
function confirmed(manifest, at) {
  new DataView(manifest.buffer, manifest.byteOffset).setBigUint64(121, BigInt(at));
  return sealed(manifest);
}

/** The age after so many milliseconds, once this computer's clock was set back by `back`. */
function ageAfter(local, milliseconds, back) {
  const [clock, timer] = [Date.now, performance.now];
  Date.now = () => clock() + milliseconds - back;
  performance.now = () => timer.call(performance) + milliseconds;
  try {
    return local.ageSeconds;
  } finally {
    Date.now = clock;
    delete performance.now;
  }
}

test("a clock that is set back takes nothing off an age: not what the manifest had at its receipt, nor after a restart", async () => {
  const folder = await mkdtemp(join(tmpdir(), "local-kya-"));
  const hour = 3_600_000;
  try {
    const change = (bytes, path) => (path === "/api/v1/snapshot" ? confirmed(bytes, Date.now() - 50_000) : bytes);
    const open = () => new LocalKya({ api: stack.snapshots, fetch: noting(change).fetch, store: new FolderStore(folder) });
    const local = open();
    await local.update();
    const reopened = open();
    await reopened.open();
    for (const held of [local, reopened]) {
      for (const [passed, back] of [[0, 0], [0, hour], [10_000, hour], [hour, hour]]) {
        const age = ageAfter(held, passed, back);
        assert.ok(age >= 50 + passed / 1000 && age < 50 + passed / 1000 + 60, `${age} s after ${passed} ms, ${back} ms back`);
      }
    }
  } finally {
    await rm(folder, { recursive: true });
  }
});

/** Runs a program on the package whose clock is so many days off, and is put there again by `shift(days)`; what it prints. */
async function withClock(program, folder, limits = {}) {
  const text = `
    const [{ default: init, LocalKya, FolderStore }] = [await import(${JSON.stringify(new URL("../../../browser/pkg/local-node.js", import.meta.url))})];
    const real = Date.now;
    const shift = (days) => (Date.now = () => real() + days * 86_400_000);
    await init();
    const local = (options) => new LocalKya({ api: ${JSON.stringify(stack.snapshots)}, store: new FolderStore(${JSON.stringify(folder)}), ...options });
    const told = async (local, wallet) => local.kya(wallet).then(({ decision }) => decision, ({ code }) => code);
    ${program}`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", text], limits);
  return JSON.parse(stdout);
}

test("a clock that goes back or is behind makes nothing younger, and no attestation current", async () => {
  const folder = await mkdtemp(join(tmpdir(), "local-kya-"));
  const { kyoto, forgetful } = stack.agents;
  const lapsed = JSON.stringify(forgetful.wallet);
  const good = JSON.stringify(kyoto.wallet);
  try {
    // Before a restart and after it; then a day, a month and a year behind while an update is made.
    const found = await withClock(
      `const [first, decisions] = [local(), []];
       await first.update();
       decisions.push(await told(first, ${good}), await told(first, ${lapsed}));
       shift(-1);
       const behind = local();
       decisions.push(await told(first, ${good}), await told(behind, ${good}), (await local().open(), "opened"));
       shift(0);
       decisions.push(await told(behind, ${good}));
       for (const days of [-1, -30, -365]) {
         shift(days);
         const later = local();
         await later.update();
         decisions.push(await told(later, ${good}), await told(later, ${lapsed}));
       }
       shift(1);
       const ahead = local();
       decisions.push(await told(ahead, ${good}));
       console.log(JSON.stringify(decisions));`,
      folder,
    );
    const fresh = ["provision", "request_renewal"];
    assert.deepEqual(found, [...fresh, "provision", "STALE", "opened", "STALE", ...fresh, ...fresh, ...fresh, "STALE"]);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("a service that is silent, or leads elsewhere, is an error in time, and a signal ends what is under way", async () => {
  let asked = 0;
  const elsewhere = (request, response) => {
    asked += 1;
    if (request.url.startsWith("/api/")) response.writeHead(302, { location: "/elsewhere" });
    response.end("{}");
  };
  await serving(elsewhere, async (api) => {
    for (const ask of [() => new LocalKya({ api }).update(), () => kyaPrivately(NOBODY, { api })]) {
      asked = 0;
      await assert.rejects(ask(), code("UNREACHABLE"));
      assert.equal(asked, 1, "a redirect is not followed");
    }
  });
  await serving(() => {}, async (api) => {
    const silent = new LocalKya({ api, timeoutSeconds: 0.2 });
    await assert.rejects(silent.update(), code("UNREACHABLE"));
    await assert.rejects(silent.update(), code("UNREACHABLE"), "and so is the next");
    const controller = new AbortController();
    const ended = new LocalKya({ api, signal: controller.signal }).update();
    const lookedUp = kyaPrivately(NOBODY, { api, signal: controller.signal });
    controller.abort(new Error("ended"));
    for (const waiting of [ended, lookedUp]) await assert.rejects(waiting, /ended/);
    const [told, over] = [[], new LocalKya({ api, signal: controller.signal })];
    over.run({ everySeconds: 0, report: (event) => told.push(event) });
    await assert.rejects(over.update(), /ended/);
    await new Promise(setImmediate);
    assert.deepEqual(told, [], "nothing is begun after it");
  });
});

test("a signal that is aborted while a busy service is waited for leaves nothing that keeps the process up", async () => {
  const ended = await withClock(
    `const controller = new AbortController();
     const { setTimeout: wait } = globalThis;
     globalThis.setTimeout = (...words) => {
       setImmediate(() => controller.abort(new Error("ended")));
       return wait(...words);
     };
     const busy = async () => new Response("{}", { status: 429, headers: { "retry-after": "60" } });
     await local({ fetch: busy, signal: controller.signal }).update().catch(({ message }) => console.log(JSON.stringify(message)));`,
    join(tmpdir(), "local-kya-none"),
    { timeout: 30_000 },
  );
  assert.equal(ended, "ended");
});

test("a page keeps the registry in IndexedDB", () =>
  inAPage({}, async (page) => {
    const asked = { api: stack.snapshots, wallets: WALLETS };
    const hold = async ({ api, wallets, updates }) => {
      const { IndexedDbStore, LocalKya } = window.local;
      const local = new LocalKya({ api, store: new IndexedDbStore(), ...(updates ? {} : { fetch: () => Promise.reject() }) });
      const update = updates ? await local.update() : undefined;
      const verdicts = [];
      for (const wallet of wallets) verdicts.push(JSON.stringify(await local.kya(wallet).catch(({ code }) => ({ code }))));
      return { update, verdicts };
    };
    const first = await page.evaluate(hold, { ...asked, updates: true });
    assert.ok(first.update.shards >= 1);
    await page.reload();
    await page.waitForFunction(() => document.title === "ready");
    const { verdicts } = await page.evaluate(hold, { ...asked, updates: false });
    assert.deepEqual(verdicts.map(still), first.verdicts.map(still));
    await isTheWorkers(async (wallet) => {
      const verdict = JSON.parse(verdicts[WALLETS.indexOf(wallet)]);
      if (verdict.code !== undefined) throw new RegistryError("in the page", verdict.code, 503);
      return verdict;
    });
  }));

test("a page's store opens its database again after a failure, and once another has deleted it", () =>
  inAPage({}, async (page) => {
    const found = await page.evaluate(async () => {
      const done = (request) =>
        new Promise((resolve, reject) => {
          request.onsuccess = () => resolve(request.result);
          for (const fails of ["onerror", "onblocked"]) request[fails] = () => reject(new Error(fails));
        });
      // A later version cannot be opened.
      (await done(indexedDB.open("other", 2))).close();
      const store = new window.local.IndexedDbStore("other");
      const failure = await store.read().catch(({ name }) => name);
      const kept = [];
      for (const name of ["a", "b"]) {
        await done(indexedDB.deleteDatabase("other"));
        await store.add([[name, new Uint8Array(1)]]);
        kept.push((await store.read()).shards);
      }
      return { failure, kept };
    });
    assert.deepEqual(found, { failure: "VersionError", kept: [["a"], ["b"]] });
  }));
