// The registry held by a page or program itself: verdicts without a network, and private lookups by range. The rules are the
// core's (`snapshot.js`); here are the requests, and where the bytes are kept.
import { RegistryError, loaded } from "./error.js";
import init, { Manifest, rangeOf, unregistered } from "./snapshot.js";
import { MemoryStore } from "./stores.js";

export { initSync } from "./snapshot.js";
export { RegistryError } from "./error.js";
export { IndexedDbStore, MemoryStore } from "./stores.js";

/** The most shards of a request. */
const BUNDLE_MAX = 32;
/** Shards that are kept at hand beside the store, in bytes: the ones in use. */
const RECENT_BYTES = 8 * 1024 * 1024;
/** The most manifests that an update fetches, where each took so long that its verdicts are old already. */
const ROUNDS_MAX = 3;
/** The longest wait for the API's rate limit, in seconds, and how often a request is repeated after one. */
const WAIT_MAX = 60;
const REPEATS_MAX = 5;
/** The longest duration of a request, in seconds. */
const TIMEOUT = 30;
/** The fewest agents that a range of one digit is asked for of: about thirty share it then. */
const RANGES_FROM = 480;

export default (source) => loaded(init(source));

export class LocalKya {
  #options;
  #store;
  /**
   * The manifest that verdicts go by: `{ manifest, fetchedAt, anchor }`. The anchor is the receipt by both clocks, or the opening where
   * another run fetched it; undefined where this computer's clock was behind the receipt then: how long it was kept is not known.
   */
  #current;
  /** The names of the shards in the store. */
  #stored = new Set();
  /** Shards that were checked and used last, by name, the newest last. */
  #recent = new Map();
  #recentBytes = 0;
  #opened;
  #updating;
  /** How many verdicts were given since the last spot check, and a random wallet of them. */
  #sample = { asked: 0, wallet: undefined };

  constructor({ maxAgeSeconds = 60, maxBlockAgeSeconds = Infinity, store, ...options }) {
    this.#options = { ...options, ...service(options), ...checked({ maxAgeSeconds, maxBlockAgeSeconds }, Infinity) };
    this.#store = store ?? new MemoryStore();
  }

  /** How old a verdict would be now; undefined where nothing is held yet. */
  get ageSeconds() {
    if (this.#current === undefined) return undefined;
    const { manifest, fetchedAt, anchor } = this.#current;
    if (anchor === undefined) return Infinity;
    // The API's clock is not believed beyond the time of receipt.
    return (since(anchor, anchor.clock) - Math.min(manifest.confirmedAt, fetchedAt)) / 1000;
  }

  /** The time that verdicts are judged at: this computer's, but never earlier than what the manifest states and has passed since. */
  #now({ manifest, anchor }) {
    return Math.floor(since(anchor, Math.max(anchor.clock, manifest.blockTime, manifest.confirmedAt)));
  }

  /** Reads what the store holds. The other methods wait for it. */
  open() {
    this.#opened ??= this.#open().catch((error) => {
      // The next call tries again.
      this.#opened = undefined;
      throw error;
    });
    return this.#opened;
  }

  /** Reads the store; where a manifest is held already, only one of a later block is taken. */
  async #open() {
    const { manifest: bytes, fetchedAt, shards } = await this.#store.read();
    const manifest = bytes === undefined ? undefined : readable(bytes);
    const held = this.#current?.manifest;
    if (held !== undefined && !(manifest?.block > held.block && Date.now() >= fetchedAt)) return;
    this.#stored = new Set(shards);
    // A store that is damaged or of another version goes on with its shards, each of which is checked; that of another
    // registry is begun anew.
    if (manifest === undefined || !Number.isSafeInteger(fetchedAt)) return;
    if (isOther(manifest, held ?? this.#options)) this.#stored = new Set();
    else this.#current = { manifest, fetchedAt, anchor: Date.now() < fetchedAt ? undefined : moment() };
  }

  async kya(wallet) {
    await this.open();
    const verdict = await this.#verdict(wallet, () => this.#now(this.#current));
    // What has no verdict here has none that a spot check could compare.
    this.#sample.asked += 1;
    if (Math.random() * this.#sample.asked < 1) this.#sample.wallet = wallet;
    return verdict;
  }

  /** The verdict at the time that `clock` gives for the manifest. */
  async #verdict(asked, clock) {
    const wallet = String(asked);
    for (;;) {
      const manifest = this.#usable();
      let name, bytes = new Uint8Array();
      for (name of manifest.namesOf(wallet)) {
        bytes = await this.#shard(manifest, name);
        if (bytes === undefined || manifest.holds(name, bytes, wallet)) break;
      }
      // An update meanwhile may have replaced the shard, and time has passed.
      if (this.#usable() !== manifest) continue;
      if (bytes === undefined) {
        // Another page or process that shares the store has deleted it, once it had adopted a later manifest.
        await this.#open();
        if (this.#usable() !== manifest) continue;
        throw stale("a part was lost or damaged, and the next update fetches it");
      }
      const verdict = manifest.verdict(name, bytes, wallet, clock(manifest));
      if (verdict === undefined) throw new RegistryError("Only the chain can tell", "ASK_CHAIN", 503);
      return verdict;
    }
  }

  /** The manifest, if verdicts may be given from it now. */
  #usable() {
    const age = this.ageSeconds;
    if (age === undefined) throw stale("there is nothing yet");
    if (age === Infinity) throw stale("this computer's clock was set back");
    const ofBlock = (this.#now(this.#current) - this.#current.manifest.blockTime) / 1000;
    if (age > this.#options.maxAgeSeconds) throw stale(`${Math.floor(age)} s`);
    if (ofBlock > this.#options.maxBlockAgeSeconds) throw stale(`${Math.floor(ofBlock)} s`);
    return this.#current.manifest;
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
    try {
      for (let round = 0; round < ROUNDS_MAX; round += 1) {
        const [began, before] = [performance.now(), update.shards];
        const bytes = await this.#ask("/api/v1/snapshot", update);
        const [anchor, manifest] = [moment(), new Manifest(bytes)];
        if (isOther(manifest, this.#options)) throw new RegistryError("The snapshot of another registry", "INVALID_SNAPSHOT", 502);
        this.#checkAdvance(manifest);
        const names = manifest.names();
        const missing = names.filter((name) => !this.#stored.has(name));
        await this.#fetchShards(manifest, missing, update);
        if (names.every((name) => this.#stored.has(name))) {
          await this.#store.adopt(bytes, anchor.clock, new Set(names));
          this.#stored = new Set(names);
          this.#current = { manifest, fetchedAt: anchor.clock, anchor };
          adopted = true;
          Object.assign(update, { block: manifest.block, agents: manifest.agents });
          // What took long is old already.
          if (performance.now() - began < this.#options.maxAgeSeconds * 250) break;
        } else if (update.shards === before) break;
      }
    } catch (error) {
      // A later round got no answer: what was adopted is in force.
      if (!adopted || !(error instanceof RegistryError) || ["INVALID_SNAPSHOT", "WENT_BACK"].includes(error.code)) throw error;
    }
    // Without one the API has had newer shards each time: the next update goes on.
    if (!adopted) throw new RegistryError("The API has other shards by now", "NOT_FOUND", 404);
    return update;
  }

  /** Fails where an older block is offered than the one that is held and not too old. */
  #checkAdvance(offered) {
    const held = this.#current?.manifest;
    if (held === undefined || offered.block > held.block) return;
    if (offered.block === held.block && offered.blockTime >= held.blockTime) return;
    try {
      this.#usable();
    } catch {
      return;
    }
    throw new RegistryError(`The API went back from block ${held.block} to block ${offered.block}`, "WENT_BACK", 502);
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
    for (let repeats = 0; ; repeats += 1) {
      update.requests += 1;
      const { status, headers, bytes } = await request(this.#options, path);
      if (status === 200) {
        update.bytes += bytes.length;
        return bytes;
      }
      if (status !== 429 || repeats === REPEATS_MAX) throw refusal(status, bytes);
      const seconds = Number(headers.get("retry-after") ?? WAIT_MAX) || 1;
      await waiting(Math.min(Math.max(seconds, 1), WAIT_MAX) * 1000, this.#options.signal);
    }
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
    const answer = await request(this.#options, `/api/v1/kya/${asked}?evidence=1`).catch(() => undefined);
    const evidence = answer?.status === 200 ? text(answer.bytes) : undefined;
    return { agrees: false, wallet: asked, block: manifest.block, held, chain: proved, evidence };
  }

  /** A wallet to check: a random one of those asked for since the last check, or else one of a random file or the manifest. */
  async #candidate() {
    const { wallet } = this.#sample;
    this.#sample = { asked: 0, wallet: undefined };
    if (wallet !== undefined) return wallet;
    const manifest = this.#usable();
    const name = pick([undefined, ...manifest.names()]);
    const bytes = name === undefined ? new Uint8Array() : await this.#shard(manifest, name);
    const wallets = bytes === undefined ? [] : manifest.wallets(name, bytes);
    // An empty shard tells of all its wallets that they are not registered: any will do.
    return wallets.length > 0 ? pick(wallets) : `0x${"00".repeat(19)}01`;
  }

  run({ everySeconds = 20, checkEverySeconds, report = () => {} } = {}) {
    checked({ everySeconds, ...(checkEverySeconds !== undefined && { checkEverySeconds }) });
    const { signal } = this.#options;
    // No event tells of what was aborted before.
    if (signal?.aborted) return () => {};
    const stops = [repeat(everySeconds, async () => report({ updated: await this.update() }), report)];
    if (checkEverySeconds !== undefined) {
      stops.push(repeat(checkEverySeconds, async () => report({ checked: await this.spotCheck() }), report));
    }
    const stop = () => stops.forEach((stop) => stop());
    signal?.addEventListener("abort", stop, { once: true });
    return stop;
  }
}

/** Whether a registry is another one than the options name. */
function isOther({ chainId, registry }, { chainId: ownChain, registry: own }) {
  const isOwn = own === undefined || registry.toLowerCase() === own.toLowerCase();
  return !isOwn || (ownChain !== undefined && BigInt(chainId) !== BigInt(ownChain));
}

/** The agents of each API's registry, for the length of ranges; a registry only grows. */
const agentsOf = new Map();

export async function kyaPrivately(asked, options) {
  const [wallet, { digitsMax = 1, signal }] = [String(asked), options];
  const place = { ...service(options), signal };
  const { api } = place;
  // What is no wallet is refused before anything is asked.
  rangeOf(wallet, 0);
  const ask = async (path) => {
    const { status, headers, bytes } = await request(place, path);
    if (status !== 200) throw refusal(status, bytes);
    return { headers, document: documentOf(bytes) };
  };
  const agents = async () => {
    if (!agentsOf.has(api)) agentsOf.set(api, Number((await ask("/api/v1/stats")).document.totalAgents));
    return agentsOf.get(api);
  };
  const range = async (path) => {
    const { headers, document } = await ask(path);
    const [, chainId, registry] = /^eip155:(\d+):(0x[0-9a-fA-F]{40})$/.exec(headers.get("kya-registry") ?? "") ?? [];
    const isNamed = (options.chainId ?? options.registry) !== undefined;
    if (isNamed && (registry === undefined || isOther({ chainId, registry }, options)))
      throw new RegistryError("The range of another registry", "INVALID_SNAPSHOT", 502);
    return document;
  };
  const sent = async () => `/api/v1/kya/range/${rangeOf(wallet, await agents()).slice(0, digitsMax)}`;
  if ((await agents()) < RANGES_FROM) {
    // Even a range of one digit would be shared by too few: all of the registry is fetched, which names none.
    const whole = new LocalKya({ ...options, signal });
    const { agents: shared } = await whole.update();
    return { verdict: await whole.kya(wallet), sent: "/api/v1/snapshot", shared };
  }
  const first = await sent();
  try {
    return verdictOf(wallet, await range(first), first);
  } catch (error) {
    if (error.code !== "INVALID_PARAMETER") throw error;
    // The registry has grown since it was counted: ranges are smaller now.
    agentsOf.delete(api);
    const second = await sent();
    if (second === first) throw invalid("digitsMax", `leaves too large a range for this service: ${error.message}`);
    return verdictOf(wallet, await range(second), second);
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

/** Now, by this computer's clock and by one that is never set back, both in milliseconds. */
function moment() {
  return { timer: performance.now(), clock: Date.now() };
}

/** This computer's time, or `time` and what has passed since a moment, where that is later: then the clock was set back. */
function since({ timer }, time) {
  return Math.max(Date.now(), time + performance.now() - timer);
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

/** Numbers of seconds. With `NaN` nothing would be too old; a timer takes it, and what is above this `max`, for none. */
function checked(durations, max = 2_147_483) {
  for (const [field, seconds] of Object.entries(durations))
    if (typeof seconds !== "number" || !(seconds >= 0 && seconds <= max)) throw invalid(field, `must be seconds from 0 to ${max}`);
  return durations;
}

/** Where the API is, and how it is asked. */
function service({ api, fetch, timeoutSeconds = TIMEOUT }) {
  if (!/^https?:\/\//.test(api)) throw invalid("api", "must begin with https:// or http://");
  return { api: api.replace(/\/+$/, ""), fetch: fetch ?? globalThis.fetch.bind(globalThis), ...checked({ timeoutSeconds }) };
}

/** The whole answer, within the time limit. A redirect is none; Workers know no `redirect: "error"`. */
async function request({ api, fetch, timeoutSeconds, signal }, path) {
  const limits = [AbortSignal.timeout(Math.ceil(timeoutSeconds * 1000)), signal].filter((limit) => limit !== undefined);
  const limit = AbortSignal.any(limits);
  const exchange = async () => {
    const response = await fetch(api + path, { redirect: "manual", signal: limit });
    const { status, headers, type } = response;
    if (type === "opaqueredirect" || (status >= 300 && status < 400)) throw new TypeError("a redirect");
    return { status, headers, bytes: new Uint8Array(await response.arrayBuffer()) };
  };
  try {
    return await Promise.race([exchange(), aborted(limit)]);
  } catch (cause) {
    signal?.throwIfAborted();
    throw new RegistryError("The API cannot be reached", "UNREACHABLE", 503, cause);
  }
}

/** Rejects once the signal is aborted. */
function aborted(signal) {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

/** Waits for so long; where the signal is aborted, it rejects, and no timer keeps the process up. */
async function waiting(milliseconds, signal) {
  signal?.throwIfAborted();
  let timer, end;
  const wait = new Promise((resume, reject) => {
    timer = setTimeout(resume, milliseconds);
    end = () => reject(signal.reason);
    signal?.addEventListener("abort", end);
  });
  try {
    await wait;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", end);
  }
}

/** The document of a good answer. */
function documentOf(bytes) {
  let document;
  try {
    document = JSON.parse(text(bytes));
  } catch {
    // It is no JSON.
  }
  if (typeof document === "object" && document !== null) return document;
  throw new RegistryError("The API answers something that is no document", "UNREACHABLE", 502);
}

/** The error that the API answers with. */
function refusal(status, bytes) {
  try {
    const { error, code } = JSON.parse(text(bytes));
    return new RegistryError(error ?? `Status ${status}`, code ?? "UNREACHABLE", status);
  } catch {
    return new RegistryError(`Status ${status}`, "UNREACHABLE", status);
  }
}

const text = (bytes) => new TextDecoder().decode(bytes);

/** A store's manifest; undefined where it is damaged, or of a version that this one does not read. */
function readable(bytes) {
  try {
    return new Manifest(bytes);
  } catch {
    return undefined;
  }
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

function stale(what) {
  return new RegistryError(`What is held of the registry is too old: ${what}`, "STALE", 503);
}

function damaged() {
  return new RegistryError("a snapshot that is cut or changed", "INVALID_SNAPSHOT", 502);
}

function invalid(field, rule) {
  return new RegistryError(`Invalid ${field}: ${rule}`, "INVALID_PARAMETER", 400);
}
