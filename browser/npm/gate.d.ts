/// <reference lib="esnext.disposable" />

import init from "./decision.js";

export default init;

/** The agent that has signed, by its wallet, and the verdict on it. */
export interface Agent {
  /** The wallet that signed; null in a policy that only observes, where no signature was accepted. */
  wallet: string | null;
  /** The agent's id; null where none is registered. */
  agentId: string | null;
  decision: "provision" | "request_renewal" | "deny" | null;
  /** The liable person's wallet; null where no agent is registered. */
  liable: string | null;
  /** What ties that wallet to the agent: `accepted`, `registered`, `attested`, `named` or `unknown`. */
  liableBasis: string | null;
  /** The last second at which the attestation is current, ISO 8601; null where the agent is not compliant. */
  until: string | null;
  /** The verdict as a signed token; null where the gate signs none. It is no credential. */
  verdict: string | null;
}

/** A request that is served. */
export interface Admitted {
  admitted: true;
  agent: Agent;
  /** The gate's headers, each null where it is to be removed. */
  headers: Record<string, string | null>;
  /** What became of the request, of a `LocalGate`: not `admitted` where its policy only observes. */
  outcome?: string;
}

/** A request that is not served: the answer says how to go on. */
export interface Refused {
  admitted: false;
  /** 400, 401, 403, 413 or 503, with a problem document (RFC 9457). */
  response: Response;
  /** The stable code, of a `LocalGate`. */
  outcome?: string;
}

/** What both gates do. */
interface Guard {
  /**
   * Reads a request to its end. `request` is the same with the gate's headers in place of the client's own.
   *
   * @throws TypeError where its content was read before
   */
  admit(request: Request): Promise<(Admitted & { request: Request }) | Refused>;
  /**
   * The same about the parts of a request: the method, the path and query as they were received, the headers, and the
   * whole content.
   */
  ask(
    method: string,
    target: string,
    headers: ConstructorParameters<typeof Headers>[0] | Iterable<[string, string]>,
    content: Uint8Array,
  ): Promise<Admitted | Refused>;
}

/** Where a daemon is, and what it decides by. */
export interface GateOptions {
  /** The daemon's address, such as `http://127.0.0.1:4180`. */
  url: string | URL;
  /** The name of one of its policies. */
  policy: string;
  /** The longest content that is read, in bytes; 1 MiB unless given. Longer content is refused with 413. */
  longestContent?: number;
  /** How long the daemon may take; 6000 unless given. After that requests are refused with 503. */
  timeoutMillis?: number;
  /** What to reach the daemon with, instead of the global one. */
  fetch?: typeof fetch;
}

/** Asks a kya-gate daemon. Whatever it does not answer is refused. */
export class Gate implements Guard {
  constructor(options: GateOptions);
  admit(request: Request): Promise<(Admitted & { request: Request }) | Refused>;
  ask(
    method: string,
    target: string,
    headers: ConstructorParameters<typeof Headers>[0] | Iterable<[string, string]>,
    content: Uint8Array,
  ): Promise<Admitted | Refused>;
}

/** What a gate in this process decides by. */
export interface LocalGateOptions {
  /** The text of the daemon's configuration file, without `listen` and `[proxy]`. */
  settings: string;
  /** The name of one of its policies. */
  policy: string;
  /** RPC endpoints in place of the file's, separated by commas: those with a key. */
  rpc?: string;
  /** Where nonces are remembered; in memory unless given, which Workers cannot. */
  nonces?: NonceStore;
  /** The longest content that is read, in bytes; 1 MiB unless given. Longer content is refused with 413. */
  longestContent?: number;
  /** What to reach the chain and the read API with, instead of the global one. */
  fetch?: typeof fetch;
  /** Hears why an account or a verdict could not be read, or why the store of nonces failed; `console.warn` unless given. */
  report?: (message: string) => void;
}

/** Decides in this process, as the daemon does. `init()` comes first. */
export class LocalGate implements Guard {
  /** Throws an Error that names the setting which a gate in process cannot keep. */
  constructor(options: LocalGateOptions);
  /** The gate of another policy of the same file: accounts and nonces are shared. */
  under(policy: string): LocalGate;
  /** The JSON for `/.well-known/erc8128`. */
  readonly discoveryDocument: string;
  /** The JSON for `/.well-known/agent-registry`, which every refusal names. */
  readonly registryDocument: string;
  admit(request: Request): Promise<(Admitted & { request: Request }) | Refused>;
  ask(
    method: string,
    target: string,
    headers: ConstructorParameters<typeof Headers>[0] | Iterable<[string, string]>,
    content: Uint8Array,
  ): Promise<Admitted | Refused>;
}

/** Where nonces are remembered. Of any number of calls with one key, in all instances of a service, one is "spent". */
export interface NonceStore {
  /**
   * Spends a nonce and remembers it for so many milliseconds. "unknown" is for what was signed (`created`, unix seconds)
   * before the store can know; "full" where no further one can be remembered. An error refuses the request with 503.
   */
  spend(
    key: string,
    created: number,
    keepMillis: number,
  ): "spent" | "reused" | "unknown" | "full" | Promise<"spent" | "reused" | "unknown" | "full">;
}

/** In this process alone: for a service that runs once. What was signed before it, or in the second of its start, is refused. */
export class MemoryNonces implements NonceStore {
  /** Remembers at most so many; 100,000 unless given. */
  constructor(capacity?: number);
  spend(key: string, created: number, keepMillis: number): "spent" | "reused" | "unknown" | "full";
}

/** A client of node-redis, or of ioredis. */
export type RedisClient =
  | { sendCommand(words: string[]): Promise<unknown> }
  | { call(command: string, ...words: string[]): Promise<unknown> };

/** In a Redis server, with other instances, and with daemons of the same prefix. */
export class RedisNonces implements NonceStore {
  /** The prefix is `kya-gate:` unless given, as the daemon's; a server that takes longer than `timeoutMillis` (1000) is unavailable. */
  constructor(client: RedisClient, options?: { prefix?: string; timeoutMillis?: number });
  spend(key: string, created: number, keepMillis: number): Promise<"spent" | "reused" | "unknown" | "full">;
}

/** In Durable Objects of the class `NonceObject`: 8 of them, unless another number is given, which then stays. */
export class ObjectNonces implements NonceStore {
  constructor(namespace: { idFromName(name: string): any; get(id: any): any }, options?: { objects?: number });
  spend(key: string, created: number, keepMillis: number): Promise<"spent" | "reused">;
}

/** The class of a Worker's Durable Objects with nonces, for its `new_sqlite_classes`. */
export class NonceObject {
  constructor(state: { storage: any });
  fetch(request: Request): Promise<Response>;
  alarm(): Promise<void>;
}

/** For handlers of `fetch`: the answer that refuses a request, or the request as it was admitted, with its `agent`. */
export function forFetch(gate: Guard): (request: Request) => Promise<Response | (Admitted & { request: Request })>;

/** A middleware for Hono: sets `agent` in the context. */
export function forHono(gate: Guard): (context: any, next: () => Promise<void>) => Promise<Response | undefined>;

/** A middleware for Express: sets `request.agent`, and `request.body`, a Buffer, where no parser came before. */
export function forExpress(gate: Guard): (request: any, response: any, next: (error?: unknown) => void) => Promise<void>;

/** A hook `preHandler` for Fastify, where all content is parsed as a buffer: sets `request.agent`. */
export function forFastify(gate: Guard): (request: any, reply: any) => Promise<unknown>;
