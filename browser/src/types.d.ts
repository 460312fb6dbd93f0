/** A wallet or another source of chain data (EIP-1193), such as `window.ethereum`. */
export interface Eip1193Provider {
  request(call: { method: string; params?: any }): Promise<unknown>;
}

export interface RegistryOptions {
  /** A JSON-RPC endpoint, or several separated by commas, each asked where those before it fail; or a wallet. */
  rpc: string | Eip1193Provider;
  /** The registry's address. */
  registry: string;
  /** Where Multicall3 is, if not at its usual address. */
  multicall3?: string;
  /** The chain that endpoint or wallet have to be on; it has to be given where there are several endpoints. */
  chainId?: Integer | string;
  /** How long an answer may take, all its round trips together: 1 to 3600, 15 if not given. */
  timeoutSeconds?: number;
  /** What to reach the endpoint with, instead of the global `fetch`. */
  fetch?: typeof globalThis.fetch;
}

export interface AgentsQuery {
  /** From 1. */
  page?: number;
  /** Agents a page, at most 100; 20 if not given. */
  limit?: number;
  status?: Status;
}

export interface ComplianceQuery {
  /** Agents a page, at most 100; 20 with a `cursor` alone. With neither the list is whole. */
  limit?: number;
  /** The `next` of the page before. */
  cursor?: string;
}

export interface RevenueQuery {
  /** Reports at most; 100 if not given, never more than 500. */
  limit?: number;
  /** Reports to pass over. */
  offset?: number;
}

export interface KyaQuery extends BlockQuery {
  /** 1 to be told the wallet's past, for which all agents have to be read. Not together with `block`. */
  history?: 0 | 1;
}

export interface BlockQuery {
  /** The block to ask at, by number or hash; judged at its time. The newest, and now, if not given. */
  block?: Integer | string;
}

/** A meta-transaction. Integers may be numbers, BigInts, or decimal or 0x-hex strings. */
export interface ForwardRequest {
  from: string;
  /** The registry. */
  to: string;
  /** 0: the relayer moves no value. */
  value: Integer | string;
  /** For the call itself, the forwarder's own not included. */
  gas: Integer | string;
  /** The relayer's `GET /nonce/:address` has the next one. */
  nonce: Integer | string;
  /** Unix seconds; 0 is never. */
  deadline: Integer | string;
  /** The call. */
  data: string;
}

export interface ForwarderDomain {
  chainId: Integer | string;
  /** The forwarder's address. */
  forwarder: string;
}

/** What is posted to the relayer. */
export interface SignedRequest {
  request: ForwardRequest;
  signature: string;
}

export interface RelayRules extends ForwarderDomain {
  /** The only contract that requests may call. */
  registry: string;
  /** The relayer's cap on `gas`; none if not given. */
  maxGas?: Integer | string;
}

/** The arguments of the registry's `registerAgent`. */
export interface Registration {
  haftungsperson: string;
  agentWallet: string;
  /** 32 bytes. */
  constitutionHash: string;
  /** 32 bytes. */
  capabilityHash: string;
  operationalScope: string;
  /** 0 for a root. */
  parentAgentId: Integer | string;
  selfModifying: boolean;
}

/** EIP-712 typed data for a forward request. Its integers are strings: `JSON.stringify` keeps all of it. */
export interface TypedData {
  types: Record<"EIP712Domain" | "ForwardRequest", { name: string; type: string }[]>;
  primaryType: "ForwardRequest";
  domain: { name: string; version: string; chainId: number; verifyingContract: string };
  message: Record<"from" | "to" | "value" | "gas" | "nonce" | "deadline" | "data", string>;
}
