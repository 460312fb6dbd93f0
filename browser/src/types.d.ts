/** A whole number of any size: a BigInt where a double would round it. */
export type Integer = number | bigint;

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

export type Status = "Active" | "Suspended" | "Revoked" | "Terminated";

export interface Health {
  status: "ok";
  registry: string;
  rpc: string;
}

export interface Stats {
  totalAgents: Integer;
  registryAddress: string;
  /** The endpoint's scheme and host; never its path, which may hold a key. */
  chain: string;
}

export interface DetailedStats extends Stats {
  statusDistribution: Record<Status, number>;
  /** By generation, 0 being the roots. */
  generationDistribution: Record<string, number>;
  /** Per cent of all agents, with one decimal. */
  complianceRate: string;
  compliantCount: number;
  /** In cents, by currency. */
  totalRevenue: Record<string, Integer>;
  /** The last ten, newest first. */
  recentRegistrations: RecentRegistration[];
  /** Agents that cannot be read, as their lists are too long for the node; absent where there are none. */
  unreadable?: Integer[];
}

export interface RecentRegistration {
  agentId: Integer;
  creator: string;
  haftungsperson: string;
  agentWallet: string;
  registeredAt: string;
  status: Status;
}

export interface Agent {
  agentId: Integer;
  creator: string;
  /** Who is liable. */
  haftungsperson: string;
  agentWallet: string;
  constitutionHash: string;
  capabilityHash: string;
  /** Whatever the agent wrote there: escape it. */
  operationalScope: string;
  /** 0 for a root. */
  parentAgentId: Integer;
  generation: Integer;
  selfModifying: boolean;
  registeredAt: string;
  lastAttestation: string;
  /** 1970 for one that never reported. */
  lastRevenueReport: string;
  status: Status;
}

export interface Compliance {
  isActive: boolean;
  attestationCurrent: boolean;
  secondsSinceAttestation: number;
  childCount: Integer;
  status: Status;
}

export interface AgentDetail {
  agent: Agent;
  /** Their ids. */
  children: Integer[];
  compliance: Compliance;
  /** True where children were cut, as there are too many to read. */
  truncated?: boolean;
  note?: string;
  /** The block asked about, at whose time compliance is judged; absent where none was named. */
  asOf?: AsOf;
}

export interface AgentsQuery {
  /** From 1. */
  page?: number;
  /** Agents a page, at most 100; 20 if not given. */
  limit?: number;
  status?: Status;
}

export interface AgentPage {
  /** After filtering. */
  total: Integer;
  page: Integer;
  limit: number;
  totalPages: Integer;
  data: AgentListItem[];
  /** Agents that cannot be read, as their lists are too long for the node; absent where there are none. */
  unreadable?: Integer[];
}

export interface AgentListItem {
  agentId: Integer;
  creator: string;
  status: Status;
  registeredAt: string;
}

export interface ComplianceQuery {
  /** Agents a page, at most 100; 20 with a `cursor` alone. With neither the list is whole. */
  limit?: number;
  /** The `next` of the page before. */
  cursor?: string;
}

export interface ComplianceList {
  total: number;
  /** The page size used; absent where the list is whole. */
  limit?: number;
  data: { agentId: Integer; creator: string; status: Status; compliance: Compliance }[];
  /** Where to go on; absent on the last page, and where the list is whole. */
  next?: string;
  /** Agents that cannot be read, as their lists are too long for the node; absent where there are none. */
  unreadable?: Integer[];
}

export interface LineageNode {
  agentId: Integer;
  wallet: string;
  generation: Integer;
  status: Status;
  children: LineageNode[];
  /** Not all children are shown. */
  truncated?: true;
  /** What is not shown, in words. */
  note?: string;
  /** Agents that cannot be read, as their lists are too long for the node; absent where there are none. */
  unreadable?: Integer[];
}

export interface RevenueQuery {
  /** Reports at most; 100 if not given, never more than 500. */
  limit?: number;
  /** Reports to pass over. */
  offset?: number;
}

export interface RevenueHistory {
  total: number;
  offset: Integer;
  limit: number;
  data: RevenueReport[];
}

export interface RevenueReport {
  /** In cents. */
  amount: Integer;
  currency: string;
  category: string;
  periodStart: string;
  periodEnd: string;
  reportedAt: string;
}

export interface RevenueAggregate {
  totalReports: number;
  /** In cents, whatever the currency. */
  totalAmount: Integer;
  byCurrency: Record<string, Integer>;
  byCategory: Record<string, Integer>;
  /** Agents that cannot be read, as their lists are too long for the node; absent where there are none. */
  unreadable?: Integer[];
}

export interface Kya {
  wallet: string;
  isRegistered: boolean;
  /** Serve it. Registered but not compliant: ask it to attest. */
  isCompliant: boolean;
  agent: Pick<
    Agent,
    | "agentId"
    | "creator"
    | "haftungsperson"
    | "agentWallet"
    | "operationalScope"
    | "status"
    | "registeredAt"
    | "lastAttestation"
  > | null;
  checkedAt: string;
  /** Follows from `isRegistered` and `isCompliant`, and from nothing else. */
  decision: Decision;
  /** Why, most telling first. */
  reasons: Reason[];
  /** The last second at which it is compliant; null where it is not, and where no time ends it. */
  compliantUntil: string | null;
  asOf: AsOf;
  /** Whether an agent has, or had, the wallet. */
  registration: "never" | "current" | "former" | "unknown";
  /** Newest first. */
  formerAgents: FormerAgent[] | "unknown";
  /** There are more than the 20 shown. */
  formerAgentsTruncated?: true;
  /** The nearest first. */
  ancestorsNotActive: InactiveAncestor[] | "unknown";
  /** Absent where nothing is unknown. */
  unknownBecause?: UnknownBecause;
}

/** The verdicts on several wallets, all at one block, in the order asked. */
export interface KyaList {
  total: number;
  data: (Kya | KyaFailure)[];
}

/** Why there is no verdict on one wallet of a list, such as that it is no wallet. */
export interface KyaFailure {
  /** As it was asked for; its first 64 characters. */
  wallet: string;
  error: string;
  /** Such as `INVALID_PARAMETER`. */
  code: string;
}

export interface BlockQuery {
  /** The block to ask at, by number or hash; judged at its time. The newest, and now, if not given. */
  block?: Integer | string;
}

/** The agents above an agent: its parent first, its root last. */
export interface Ancestors {
  agentId: Integer;
  ancestors: { agentId: Integer; wallet: string; haftungsperson: string; status: Status; generation: Integer }[];
  /** Why the path ends before the root, in words. */
  note?: string;
  asOf: AsOf;
}

/** Serve it; ask it to renew its attestation; refuse it, or ask it to register. */
export type Decision = "provision" | "request_renewal" | "deny";

/** The first five decide; the others are remarks, and a wallet that is provisioned may have them. */
export type Reason =
  | "NOT_REGISTERED"
  | "SUSPENDED"
  | "REVOKED"
  | "TERMINATED"
  | "ATTESTATION_EXPIRED"
  | "FORMER_AGENT_REVOKED"
  | "FORMER_AGENT_TERMINATED"
  | "ANCESTOR_NOT_ACTIVE";

/** An agent that had a wallet before, and has ended. */
export interface FormerAgent {
  agentId: Integer;
  status: Status;
  registeredAt: string;
  /** Absent where nothing tells. */
  endedAt?: string;
}

/** An agent's ancestor that is not Active. */
export interface InactiveAncestor {
  agentId: Integer;
  status: Status;
}

export type UnknownBecause =
  | "NOT_SCANNED"
  | "SCAN_OUTDATED"
  | "PAST_BLOCK"
  | "TOO_MANY_AGENTS"
  | "UNREADABLE_AGENTS"
  | "NOT_PROVED";

export interface KyaQuery extends BlockQuery {
  /** 1 to be told the wallet's past, for which all agents have to be read. Not together with `block`. */
  history?: 0 | 1;
}

/** The block an answer was read at. Inside a call a block does not know its own hash: its parent's names it. */
export interface AsOf {
  blockNumber: number;
  blockTimestamp: string;
  parentHash: string;
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
