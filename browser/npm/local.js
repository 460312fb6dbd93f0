// The registry held by a page or program itself: verdicts without a network, and private lookups by range. The rules are the
// core's (`snapshot.js`); here are the requests, and where the bytes are kept.
import { RegistryError } from "./error.js";
import { Manifest, rangeOf, unregistered } from "./snapshot.js";
import { MemoryStore } from "./stores.js";

export { default, initSync } from "./snapshot.js";
export { RegistryError } from "./error.js";
export { IndexedDbStore, MemoryStore } from "./stores.js";

/** The most shards of a request. */
const BUNDLE_MAX = 32;
/** Shards that are kept at hand beside the store, in bytes: the ones in use. */
const RECENT_BYTES = 8 * 1024 * 1024;
/** The most manifests that an update fetches, where each took so long that its verdicts are old already. */
const ROUNDS_MAX = 3;
/** The longest wait for the API's rate limit, in seconds. */
const WAIT_MAX = 60;

export class LocalKya {
  #options;
  #store;
  /** The manifest that verdicts go by: `{ manifest, fetchedAt, receivedAt }`. */
  #current;
  /** The names of the shards in the store. */
  #stored = new Set();
  /** Shards that were checked and used last, by name, the newest last. */
  #recent = new Map();
  #recentBytes = 0;
  #opened;
  #updating;
  /** How many wallets were asked for since the last spot check, and a random one of them. */
  #sample = { asked: 0, wallet: undefined };

  constructor({ api, chainId, registry, maxAgeSeconds = 60, maxBlockAgeSeconds = Infinity, store, chain, fetch }) {
    if (!/^https?:\/\//.test(api)) throw invalid("api", "must begin with https:// or http://");
    const ask = fetch ?? globalThis.fetch.bind(globalThis);
    this.#options = { api: api.replace(/\/+$/, ""), chainId, registry, maxAgeSeconds, maxBlockAgeSeconds, chain, fetch: ask };
    this.#store = store ?? new MemoryStore();
  }

  /** How old a verdict would be now; undefined where nothing is held yet. */
  get ageSeconds() {
    if (this.#current === undefined) return undefined;
    const { manifest, fetchedAt, receivedAt } = this.#current;
    // The API's clock is not believed beyond the time of receipt, nor this computer's where it was set back.
    const byClock = Date.now() - Math.min(manifest.confirmedAt, fetchedAt);
    const byTimer = receivedAt === undefined ? 0 : performance.now() - receivedAt;
    return Math.max(byClock, byTimer, 0) / 1000;
  }

  /** Reads what the store holds. The other methods wait for it. */
  open() {
    this.#opened ??= this.#open();
    return this.#opened;
  }

  async #open() {
    const { manifest: bytes, fetchedAt, shards } = await this.#store.read();
    if (bytes === undefined) return void (this.#stored = new Set(shards));
    const manifest = new Manifest(bytes);
    // The store of another registry is begun anew.
    if (this.#isOther(manifest)) return;
    this.#stored = new Set(shards);
    this.#current = { manifest, fetchedAt, receivedAt: undefined };
  }

  async kya(wallet) {
    await this.open();
    this.#sample.asked += 1;
    if (Math.random() * this.#sample.asked < 1) this.#sample.wallet = wallet;
    return this.#verdict(wallet, () => Date.now());
  }

  /** The verdict at the time that `clock` gives for the manifest. */
  async #verdict(asked, clock) {
    const wallet = String(asked);
    for (;;) {
      const manifest = this.#usable();
      const name = manifest.shardOf(wallet);
      const bytes = await this.#shard(manifest, name);
      // An update meanwhile may have replaced the shard, and time has passed.
      if (this.#usable() !== manifest) continue;
      if (bytes === undefined) throw stale(undefined);
      const verdict = manifest.verdict(name, bytes, wallet, clock(manifest));
      if (verdict === undefined) throw new RegistryError("Only the chain can tell", "ASK_CHAIN", 503);
      return verdict;
    }
  }

  /** The manifest, if verdicts may be given from it now. */
  #usable() {
    const age = this.ageSeconds;
    if (age === undefined || age > this.#options.maxAgeSeconds) throw stale(age);
    const { manifest } = this.#current;
    const ofBlock = (Date.now() - manifest.blockTime) / 1000;
    if (ofBlock > this.#options.maxBlockAgeSeconds) throw stale(ofBlock);
    return manifest;
  }

  /** A shard's bytes, checked; undefined where the store has lost it, so that the next update fetches it again. */
  async #shard(manifest, name) {
    const recent = this.#recent.get(name);
    if (recent !== undefined) {
      this.#recent.delete(name);
      this.#recent.set(name, recent);
      return recent;
    }
    const bytes = await this.#store.shard(name);
    try {
      manifest.check(name, bytes ?? new Uint8Array());
    } catch {
      this.#stored.delete(name);
      return undefined;
    }
    if (!this.#recent.has(name)) this.#recentBytes += bytes.length;
    this.#recent.set(name, bytes);
    for (const [oldest, { length }] of this.#recent) {
      if (this.#recentBytes <= RECENT_BYTES) break;
      this.#recent.delete(oldest);
      this.#recentBytes -= length;
    }
    return bytes;
  }

  update() {
    this.#updating ??= this.#update().finally(() => (this.#updating = undefined));
    return this.#updating;
  }

  async #update() {
    await this.open();
    const update = { block: 0, agents: 0, shards: 0, requests: 0, bytes: 0 };
    let adopted = false;
    for (let round = 0; round < ROUNDS_MAX; round += 1) {
      const [began, before] = [performance.now(), update.shards];
      const bytes = await this.#ask("/api/v1/snapshot", update);
      const [manifest, fetchedAt, receivedAt] = [new Manifest(bytes), Date.now(), performance.now()];
      if (this.#isOther(manifest)) throw new RegistryError("The snapshot of another registry", "INVALID_SNAPSHOT", 502);
      const names = manifest.names();
      const missing = names.filter((name) => !this.#stored.has(name));
      await this.#fetchShards(manifest, missing, update);
      if (names.every((name) => this.#stored.has(name))) {
        await this.#store.adopt(bytes, fetchedAt, new Set(names));
        this.#stored = new Set(names);
        this.#current = { manifest, fetchedAt, receivedAt };
        adopted = true;
        Object.assign(update, { block: manifest.block, agents: manifest.agents });
        // What took long is old already.
        if (performance.now() - began < this.#options.maxAgeSeconds * 250) break;
      } else if (update.shards === before) {
        break;
      }
    }
    // Without one the API has had newer shards each time: the next update goes on.
    if (!adopted) throw new RegistryError("The API has other shards by now", "NOT_FOUND", 404);
    return update;
  }

  /** Fetches these shards, as far as the API still has these versions of them. */
  async #fetchShards(manifest, missing, update) {
    for (let index = 0; index < missing.length; index += BUNDLE_MAX) {
      const names = missing.slice(index, index + BUNDLE_MAX);
      let bundle;
      try {
        bundle = await this.#ask(`/api/v1/snapshot/shards?names=${names.join(",")}`, update);
      } catch (error) {
        // The newest manifest has another version of each.
        if (error.status === 404) return;
        throw error;
      }
      const given = shardsOf(bundle, names).filter(([, bytes]) => bytes.length > 0);
      for (const [name, bytes] of given) manifest.check(name, bytes);
      await this.#store.add(given);
      for (const [name] of given) this.#stored.add(name);
      update.shards += given.length;
    }
  }

  /** The bytes of an answer; asks again after a while where the rate limit is used up. */
  async #ask(path, update) {
    for (;;) {
      update.requests += 1;
      const response = await request(this.#options, path);
      if (response.status !== 429) {
        if (!response.ok) throw await refusal(response);
        const bytes = new Uint8Array(await response.arrayBuffer());
        update.bytes += bytes.length;
        return bytes;
      }
      const seconds = Number(response.headers.get("retry-after") ?? WAIT_MAX) || 1;
      await new Promise((resume) => setTimeout(resume, Math.min(Math.max(seconds, 1), WAIT_MAX) * 1000));
    }
  }

  #isOther({ chainId, registry }) {
    const { chainId: ownChain, registry: own } = this.#options;
    const isOwn = own === undefined || registry.toLowerCase() === own.toLowerCase();
    return !isOwn || (ownChain !== undefined && BigInt(chainId) !== BigInt(ownChain));
  }

  async spotCheck(wallet) {
    await this.open();
    const { chain } = this.#options;
    if (chain === undefined) throw invalid("chain", "must be given for spot checks");
    const asked = wallet ?? (await this.#candidate());
    const manifest = this.#usable();
    const held = await this.#verdict(asked, (of) => of.blockTime);
    const proved = await chain.kya(asked, { block: held.asOf.blockNumber });
    if (provable(held) === provable(proved)) return { agrees: true, wallet: asked };
    // What the API itself proves now, to be kept: it contradicts what it handed out, or has changed since.
    const response = await request(this.#options, `/api/v1/kya/${asked}?evidence=1`).catch(() => undefined);
    const evidence = response?.ok ? await response.text() : undefined;
    return { agrees: false, wallet: asked, block: manifest.block, held, chain: proved, evidence };
  }

  /** A wallet to check: a random one of those asked for since the last check, or else one of a random shard. */
  async #candidate() {
    const { wallet } = this.#sample;
    this.#sample = { asked: 0, wallet: undefined };
    if (wallet !== undefined) return wallet;
    const manifest = this.#usable();
    const name = pick(manifest.names());
    const bytes = await this.#shard(manifest, name);
    const wallets = bytes === undefined ? [] : manifest.wallets(name, bytes);
    // An empty shard tells of all its wallets that they are not registered: any will do.
    return wallets.length > 0 ? pick(wallets) : `0x${"00".repeat(19)}01`;
  }

  run({ everySeconds = 20, checkEverySeconds, report = () => {} } = {}) {
    const stops = [repeat(everySeconds, async () => report({ updated: await this.update() }), report)];
    if (checkEverySeconds !== undefined) {
      stops.push(repeat(checkEverySeconds, async () => report({ checked: await this.spotCheck() }), report));
    }
    return () => stops.forEach((stop) => stop());
  }
}

/** The agents of each API's registry, for the length of ranges; a registry only grows. */
const agentsOf = new Map();

export async function kyaPrivately(asked, options) {
  const [wallet, { api }] = [String(asked), options];
  const fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  const ask = async (path) => {
    const response = await request({ api: api.replace(/\/+$/, ""), fetch }, path);
    if (!response.ok) throw await refusal(response);
    return response.json();
  };
  const sent = async () => {
    if (!agentsOf.has(api)) agentsOf.set(api, (await ask("/api/v1/stats")).totalAgents);
    return `/api/v1/kya/range/${rangeOf(wallet, agentsOf.get(api))}`;
  };
  const first = await sent();
  try {
    return verdictOf(wallet, await ask(first), first);
  } catch (error) {
    if (error.code !== "INVALID_PARAMETER") throw error;
    // The registry has grown since it was counted: ranges are smaller now.
    agentsOf.delete(api);
    const second = await sent();
    if (second === first) throw error;
    return verdictOf(wallet, await ask(second), second);
  }
}

export { rangeOf };

export function verdictInRange(wallet, range) {
  const known = range.data.find((item) => item.wallet.toLowerCase() === wallet.toLowerCase());
  if (known?.code !== undefined) throw new RegistryError(known.error, known.code, 503);
  return known ?? { ...unregistered(wallet, Date.now()), asOf: range.asOf };
}

function verdictOf(wallet, range, sent) {
  return { verdict: verdictInRange(wallet, range), sent, shared: range.total };
}

/** Each shard of a bundle: its name, and its bytes; none where it was not given. */
function shardsOf(bundle, names) {
  const view = new DataView(bundle.buffer, bundle.byteOffset, bundle.length);
  let at = 0;
  const shards = names.map((name) => {
    if (at + 4 > bundle.length) throw damaged();
    const length = view.getUint32(at);
    const bytes = bundle.slice(at + 4, at + 4 + length);
    if (bytes.length !== length) throw damaged();
    at += 4 + length;
    return [name, bytes];
  });
  if (at !== bundle.length) throw damaged();
  return shards;
}

async function request({ api, fetch }, path) {
  try {
    return await fetch(api + path, { redirect: "error" });
  } catch (cause) {
    throw new RegistryError("The API cannot be reached", "UNREACHABLE", 503, cause);
  }
}

/** The error that the API answers with. */
async function refusal(response) {
  const { error = `Status ${response.status}`, code = "UNREACHABLE" } = await response.json().catch(() => ({}));
  return new RegistryError(error, code, response.status);
}

/** The part of a verdict that the chain tells of one block, as text. */
function provable({ isRegistered, isCompliant, agent, decision, compliantUntil }) {
  return JSON.stringify([isRegistered, isCompliant, agent, decision, compliantUntil ?? null], (_, value) =>
    typeof value === "bigint" ? String(value) : value,
  );
}

/** Carries out `task` now and each so many seconds after it has ended, until the returned function is called. */
function repeat(seconds, task, report) {
  let timer;
  let isOver = false;
  const round = async () => {
    await task().catch((error) => report({ error }));
    if (!isOver) timer = setTimeout(round, seconds * 1000);
  };
  void round();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}

function pick(list) {
  return list[Math.floor(Math.random() * list.length)];
}

function stale(age) {
  const what = age === undefined ? "there is nothing yet" : `${Math.floor(age)} s`;
  return new RegistryError(`What is held of the registry is too old: ${what}`, "STALE", 503);
}

function damaged() {
  return new RegistryError("a snapshot that is cut or changed", "INVALID_SNAPSHOT", 502);
}

function invalid(field, rule) {
  return new RegistryError(`Invalid ${field}: ${rule}`, "INVALID_PARAMETER", 400);
}
