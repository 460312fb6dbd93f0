/** The agent that has signed, by its wallet, and the verdict on it. */
export interface Agent {
  /** The wallet that signed; null in a policy that only observes, where no signature was accepted. */
  wallet: string | null;
  /** The agent's id; null where none is registered. */
  agentId: string | null;
  decision: "provision" | "request_renewal" | "deny" | null;
  /** The liable person's wallet; null where no agent is registered. */
  liable: string | null;
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
}

/** A request that is not served: the answer says how to go on. */
export interface Refused {
  admitted: false;
  /** 400, 401, 403, 413 or 503, with a problem document (RFC 9457). */
  response: Response;
}

/** Where the gate is, and what it decides by. */
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
export class Gate {
  constructor(options: GateOptions);
  /** Reads a request to its end. `request` is the same with the gate's headers in place of the client's own. */
  admit(request: Request): Promise<(Admitted & { request: Request }) | Refused>;
  /**
   * The same about the parts of a request: the method, the path and query as they were received, the headers, and the
   * whole content.
   */
  ask(method: string, target: string, headers: HeadersInit, content: Uint8Array): Promise<Admitted | Refused>;
}

/** A middleware for Hono: sets `agent` in the context. */
export function forHono(gate: Gate): (context: any, next: () => Promise<void>) => Promise<Response | undefined>;

/** A middleware for Express, after `express.raw({ type: () => true })`: sets `request.agent`. */
export function forExpress(gate: Gate): (request: any, response: any, next: (error?: unknown) => void) => Promise<void>;

/** A hook `preHandler` for Fastify, where all content is parsed as a buffer: sets `request.agent`. */
export function forFastify(gate: Gate): (request: any, reply: any) => Promise<unknown>;
