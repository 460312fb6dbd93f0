/// <reference lib="esnext.disposable" />

import type { Kya } from "./registry.js";
import type { RegistryError } from "./index.js";

export { default, initSync } from "./snapshot.js";
export { RegistryError } from "./index.js";

/** Where shards and segments are kept. */
export interface SnapshotStore {
  /** The manifest that was adopted last, when it came (unix milliseconds), and the names of all shards and segments. */
  read(): Promise<{ manifest?: Uint8Array; fetchedAt?: number; shards: string[] }>;
  shard(name: string): Promise<Uint8Array | undefined>;
  add(shards: [name: string, bytes: Uint8Array][]): Promise<void>;
  /** Replaces the manifest, atomically; then deletes all shards and segments but these. */
  adopt(manifest: Uint8Array, fetchedAt: number, names: Set<string>): Promise<void>;
}

/** Keeps shards and segments in memory. */
export class MemoryStore implements SnapshotStore {
  read(): Promise<{ manifest?: Uint8Array; fetchedAt?: number; shards: string[] }>;
  shard(name: string): Promise<Uint8Array | undefined>;
  add(shards: [name: string, bytes: Uint8Array][]): Promise<void>;
  adopt(manifest: Uint8Array, fetchedAt: number, names: Set<string>): Promise<void>;
}

/** Keeps shards and segments in the browser's IndexedDB. */
export class IndexedDbStore extends MemoryStore {
  /** @param name the database's; `agent-registry` if not given */
  constructor(name?: string);
}

/** Keeps shards and segments in a folder of its own; in Node. */
export class FolderStore extends MemoryStore {
  constructor(folder: string);
}

export interface LocalKyaOptions {
  /** The read API, for example `https://kya.example`. */
  api: string;
  /** The chain that the registry has to be on; any if not given. */
  chainId?: number | bigint | string;
  /** The registry's address; the API's if not given. */
  registry?: string;
  /** How old a verdict may be: 60 if not given. */
  maxAgeSeconds?: number;
  /** How old its block may be, by the block's time; any age if not given. */
  maxBlockAgeSeconds?: number;
  /** In memory if not given. */
  store?: SnapshotStore;
  /** What spot checks ask: a `Registry` on an endpoint of your own. */
  chain?: { kya(wallet: string, query: { block: number | bigint | string }): Promise<Kya> };
  /** What to reach the API with, instead of the global `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** How long a request may take: 30 if not given. */
  timeoutSeconds?: number;
  /** Ends requests and waits with its reason, and what `run` does. */
  signal?: AbortSignal;
}

/** What an update took. */
export interface SnapshotUpdate {
  block: number;
  agents: number;
  /** Shards and segments that were fetched. */
  shards: number;
  requests: number;
  /** Bytes of the answers, decompressed. */
  bytes: number;
}

export type SpotCheck =
  | { agrees: true; wallet: string }
  | {
      agrees: false;
      wallet: string;
      block: number;
      /** The verdict as of the snapshot's block. */
      held: Kya;
      /** The chain's. */
      chain: Kya;
      /** The API's own document of evidence for the wallet now, where it gives one: keep it. */
      evidence?: string;
    };

/** What `run` tells: an update, a spot check, or why there was none. */
export type LocalKyaEvent = { updated: SnapshotUpdate } | { checked: SpotCheck } | { error: RegistryError };

/** The registry, held here: verdicts without a network. `await init()` first. */
export class LocalKya {
  /** @throws RegistryError with the code INVALID_PARAMETER where an option is not of its form, as a duration of `NaN` seconds */
  constructor(options: LocalKyaOptions);
  /** How old a verdict would be now; undefined where nothing is held yet. */
  readonly ageSeconds: number | undefined;
  /** Reads what the store holds. The other methods do it first. */
  open(): Promise<void>;
  /**
   * The verdict on a wallet, as the API has it.
   *
   * @throws RegistryError with the code STALE in place of a verdict that is too old, ASK_CHAIN where only the chain can tell
   */
  kya(wallet: string): Promise<Kya>;
  /**
   * Fetches the manifest, and the shards and segments that are new. One that fails leaves verdicts as they were; the next goes on.
   *
   * @throws RegistryError with the code WENT_BACK where an older block is offered than one that is held and not too old
   */
  update(): Promise<SnapshotUpdate>;
  /** Compares a verdict with the chain's at the same block: a wallet asked for since the last check, or a random one. */
  spotCheck(wallet?: string): Promise<SpotCheck>;
  /**
   * Updates and checks again and again, until the returned function is called or `signal` is aborted.
   *
   * @throws RegistryError with the code INVALID_PARAMETER where a pause is no number of seconds
   */
  run(options?: { everySeconds?: number; checkEverySeconds?: number; report?: (event: LocalKyaEvent) => void }): () => void;
}

/**
 * The verdict on a wallet that the API is not told. It learns a range of wallets: the first digits of a hash, so many that about
 * thirty agents or more share it by the API's own count, and never more than `digitsMax`. Of a registry of fewer than 480 agents
 * it learns nothing: all of the registry is fetched.
 */
export function kyaPrivately(
  wallet: string,
  options: Pick<LocalKyaOptions, "api" | "chainId" | "registry" | "fetch" | "timeoutSeconds" | "signal"> & {
    /** 1 if not given: a sixteenth of all wallets. Each digit more is for a registry that you know to be sixteen times larger. */
    digitsMax?: number;
  },
): Promise<{
  verdict: Kya;
  /** The path that was asked for. */
  sent: string;
  /** Wallets of the range that have or had an agent. */
  shared: number;
}>;

/** The prefix of a wallet's range, for `/api/v1/kya/range/:prefix`, in a registry of so many agents. */
export function rangeOf(wallet: string, agents: number): string;

/** The verdict on a wallet in the answer to `/api/v1/kya/range/:prefix`. */
export function verdictInRange(wallet: string, range: { data: ({ wallet: string } | Kya)[]; asOf: Kya["asOf"] }): Kya;
