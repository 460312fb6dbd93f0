/** Made from the API's description, which `cargo run -p openapi` writes. */

/**
 * An account or contract, with its EIP-55 checksum.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Address".
 */
export type Address = string;
/**
 * An agent's number, counted from 1; up to 2^256 - 1, and written with all its digits.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "AgentId".
 */
export type AgentId = Integer;
/**
 * A whole number with all its digits, beyond what 64 bits hold.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Integer".
 */
export type Integer = number | bigint;
/**
 * 32 bytes.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Hash".
 */
export type Hash = string;
/**
 * ISO 8601, UTC, with milliseconds. Years above 9999 have a plus sign and at least six digits.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Timestamp".
 */
export type Timestamp = string;
/**
 * An agent's state (`service.md` section 3). Revoked and Terminated are final.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Status".
 */
export type Status = "Active" | "Suspended" | "Revoked" | "Terminated";
/**
 * One event of an agent's history.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "HistoryEvent".
 */
export type HistoryEvent = {
  /**
   * The block of the event.
   */
  blockNumber: Integer;
  /**
   * The event's position in the block.
   */
  logIndex: Integer;
  /**
   * The timestamp of the block.
   */
  time: Timestamp;
  /**
   * The transaction.
   */
  transactionHash: Hash;
} & HistoryEvent1;
export type HistoryEvent1 =
  | {
      /**
       * The agent's own wallet.
       */
      agentWallet: Address;
      /**
       * The wallet that registered it.
       */
      creator: Address;
      event: "registered";
      /**
       * Its depth in the lineage.
       */
      generation: Integer;
      /**
       * The liable person.
       */
      haftungsperson: Address;
      /**
       * Its parent; 0 is none.
       */
      parentAgentId: AgentId;
    }
  | {
      /**
       * Who attested.
       */
      by: Address;
      event: "attested";
    }
  | {
      /**
       * In cents.
       */
      amount: Integer;
      /**
       * Who reported it.
       */
      by: Address;
      /**
       * The category.
       */
      category: string;
      /**
       * The currency.
       */
      currency: string;
      event: "revenueReported";
    }
  | {
      /**
       * Which regulator.
       */
      by: Address;
      event: "suspended";
      /**
       * Why, in the regulator's words.
       */
      reason: string;
    }
  | {
      /**
       * Which regulator.
       */
      by: Address;
      event: "reactivated";
    }
  | {
      /**
       * Which regulator.
       */
      by: Address;
      event: "revoked";
      /**
       * Why, in the regulator's words.
       */
      reason: string;
    }
  | {
      /**
       * Who terminated it.
       */
      by: Address;
      event: "terminated";
    }
  | {
      /**
       * The child's own wallet.
       */
      agentWallet: Address;
      /**
       * The child.
       */
      childAgentId: AgentId;
      /**
       * The wallet that registered the child.
       */
      creator: Address;
      event: "childRegistered";
    };
/**
 * Why a history is not complete. A closed set.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "IncompleteBecause".
 */
export type IncompleteBecause = "NO_LOGS" | "LOG_RANGE" | "EVENTS_MISSING";
/**
 * Where a history goes on: the value of the parameter `cursor`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "HistoryCursor".
 */
export type HistoryCursor = string;
/**
 * Where a list goes on: the value of the parameter `cursor`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Cursor".
 */
export type Cursor = string;
/**
 * What an index rests on.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Basis".
 */
export type Basis = "events" | "sweep";
/**
 * A place in the list of changes.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "ChangeCursor".
 */
export type ChangeCursor = string;
/**
 * What a provider does about a wallet (`service.md` section 4, the intended use of `/kya/:wallet`).
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Decision".
 */
export type Decision = "provision" | "request_renewal" | "deny";
/**
 * Bytes of any number.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Data".
 */
export type Data = string;
/**
 * What an [`Error`] is to a program that has to act on it. A closed set: messages may change, codes do not.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "ErrorCode".
 */
export type ErrorCode =
  | "INVALID_PARAMETER"
  | "AGENT_NOT_FOUND"
  | "BLOCK_NOT_AVAILABLE"
  | "NOT_FOUND"
  | "METHOD_NOT_ALLOWED"
  | "BODY_TOO_LARGE"
  | "UNSUPPORTED_MEDIA_TYPE"
  | "RATE_LIMITED"
  | "RPC_UNAVAILABLE"
  | "RPC_ERROR"
  | "REGISTRY_ERROR"
  | "TOO_LARGE"
  | "MISCONFIGURED"
  | "CURSOR_EXPIRED"
  | "INDEX_REQUIRED"
  | "INDEXING";
/**
 * A number in hexadecimal digits, without leading zeros.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Quantity".
 */
export type Quantity = string;
/**
 * Where the grace period is.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "GracePeriod".
 */
export type GracePeriod =
  | {
      slot: Quantity;
    }
  | {
      seconds: Integer;
    };
/**
 * Something that may not be known.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Known2".
 */
export type Known2 = InactiveAncestor[] | Unknown;
/**
 * The word for what is not known.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Unknown".
 */
export type Unknown = "unknown";
/**
 * Something that may not be known.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Known".
 */
export type Known = FormerAgent[] | Unknown;
/**
 * Why a decision is what it is. A closed set.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Reason".
 */
export type Reason =
  | "NOT_REGISTERED"
  | "SUSPENDED"
  | "REVOKED"
  | "TERMINATED"
  | "ATTESTATION_EXPIRED"
  | "FORMER_AGENT_REVOKED"
  | "FORMER_AGENT_TERMINATED"
  | "ANCESTOR_NOT_ACTIVE";
/**
 * Whether an agent has, or had, a wallet.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Registration".
 */
export type Registration = "never" | "current" | "former" | "unknown";
/**
 * Why something is not known. A closed set.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "UnknownBecause".
 */
export type UnknownBecause =
  "NOT_SCANNED" | "SCAN_OUTDATED" | "PAST_BLOCK" | "TOO_MANY_AGENTS" | "UNREADABLE_AGENTS" | "NOT_PROVED";
/**
 * What one wallet of a list comes to.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "KyaItem".
 */
export type KyaItem = Kya | KyaFailure;

export interface Documents {}
/**
 * An agent's record (`service.md` section 2).
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Agent".
 */
export interface Agent {
  /**
   * The agent's id.
   */
  agentId: AgentId;
  /**
   * The agent's own wallet.
   */
  agentWallet: Address;
  /**
   * Hash of what it says it can do.
   */
  capabilityHash: Hash;
  /**
   * Hash of the rules it says it follows.
   */
  constitutionHash: Hash;
  /**
   * The wallet that registered it.
   */
  creator: Address;
  /**
   * Its depth in the lineage; 0 for a root.
   */
  generation: Integer;
  /**
   * The wallet of the person who is liable for it.
   */
  haftungsperson: Address;
  /**
   * When it last attested its compliance.
   */
  lastAttestation: Timestamp;
  /**
   * When it last reported revenue; 1970-01-01T00:00:00.000Z if it never did.
   */
  lastRevenueReport: Timestamp;
  /**
   * What it says it is for: free text by whoever registered it.
   */
  operationalScope: string;
  /**
   * The agent it descends from; 0 for a root.
   */
  parentAgentId: AgentId;
  /**
   * When it was registered.
   */
  registeredAt: Timestamp;
  /**
   * It may change its own code.
   */
  selfModifying: boolean;
  /**
   * Its state.
   */
  status: Status;
}
/**
 * The answer of `/agent/:id`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "AgentDetail".
 */
export interface AgentDetail {
  /**
   * The full record.
   */
  agent: Agent;
  /**
   * The block asked about, at whose time compliance is judged; absent where none was named.
   */
  asOf?: AsOf | null;
  /**
   * Ids of the direct children, in order of registration.
   */
  children: AgentId[];
  /**
   * Where the agent stands now.
   */
  compliance: Compliance;
  /**
   * Why children are not shown; absent where all are.
   */
  note?: string | null;
  /**
   * Present and true where children were cut.
   */
  truncated?: boolean;
}
/**
 * The block an answer was read at. A block does not know its own hash inside a call, so its parent's hash stands for it:
 * whoever has the header of `blockNumber` compares its `parentHash`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "AsOf".
 */
export interface AsOf {
  /**
   * The block's number.
   */
  blockNumber: Integer;
  /**
   * The block's timestamp.
   */
  blockTimestamp: Timestamp;
  /**
   * The hash of the block before it.
   */
  parentHash: Hash;
}
/**
 * Where an agent stands (`service.md` section 2). It is compliant while it is Active and its attestation current.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Compliance".
 */
export interface Compliance {
  /**
   * The last attestation is at most the grace period old, to the second.
   */
  attestationCurrent: boolean;
  /**
   * How many direct children the agent has.
   */
  childCount: Integer;
  /**
   * The status is Active.
   */
  isActive: boolean;
  /**
   * Seconds since the last attestation; 0 where the host's clock is behind the chain's.
   */
  secondsSinceAttestation: Integer;
  /**
   * The agent's status.
   */
  status: Status;
}
/**
 * The answer of `/agent/:id/history`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "AgentHistory".
 */
export interface AgentHistory {
  /**
   * The agent.
   */
  agentId: AgentId;
  /**
   * The block up to which events are known.
   */
  asOf: IndexedAt;
  /**
   * Nothing is missing between the registration and the end of this page.
   */
  complete: boolean;
  /**
   * Events, oldest first. There may be fewer than `limit`, even none, on a page that is not the last.
   */
  data: HistoryEvent[];
  /**
   * The block that the history begins at: that of the registration where it is complete. Absent where no events are served.
   */
  fromBlock?: Integer | null;
  /**
   * Why it is not complete; absent where it is.
   */
  incompleteBecause?: IncompleteBecause | null;
  /**
   * The page size used: what was asked for, cut to the maximum.
   */
  limit: Integer;
  /**
   * The cursor of the next page; absent on the last.
   */
  next?: HistoryCursor | null;
}
/**
 * The block that an answer from the registry's index is as of.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "IndexedAt".
 */
export interface IndexedAt {
  /**
   * The block's number.
   */
  blockNumber: Integer;
  /**
   * The block's timestamp.
   */
  blockTimestamp: Timestamp;
}
/**
 * The answer of `/agents` where an index gives it: filtered by more than a status, searched, sorted or with a cursor.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "AgentList".
 */
export interface AgentList {
  /**
   * The block that the answer is as of.
   */
  asOf: IndexedAt;
  /**
   * The agents.
   */
  data: AgentSummary[];
  /**
   * The page size used: what was asked for, cut to the maximum.
   */
  limit: Integer;
  /**
   * The cursor of the next page; absent on the last.
   */
  next?: Cursor | null;
  /**
   * The page given.
   */
  page?: Integer | null;
  /**
   * How many agents there are after filtering; absent where a cursor was given, as are `page` and `totalPages`.
   */
  total?: Integer | null;
  /**
   * There may be more than `total`. Absent where there are not.
   */
  totalIsLowerBound?: boolean;
  /**
   * How many pages there are.
   */
  totalPages?: Integer | null;
  /**
   * Agents of the registry that cannot be read, and are in no list. Absent where there are none.
   */
  unreadable?: AgentId[];
}
/**
 * An agent in a list from the registry's index.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "AgentSummary".
 */
export interface AgentSummary {
  /**
   * The agent.
   */
  agentId: AgentId;
  /**
   * The agent's own wallet.
   */
  agentWallet: Address;
  /**
   * The wallet that registered it.
   */
  creator: Address;
  /**
   * Its depth in the lineage; 0 for a root.
   */
  generation: Integer;
  /**
   * The wallet of the person who is liable for it.
   */
  haftungsperson: Address;
  /**
   * It is Active, and its attestation is current.
   */
  isCompliant: boolean;
  /**
   * When it last attested its compliance.
   */
  lastAttestation: Timestamp;
  /**
   * The beginning of what it says it is for: 256 bytes at most, where `/agent/:id` has it all.
   */
  operationalScope: string;
  /**
   * The agent it descends from; 0 for a root.
   */
  parentAgentId: AgentId;
  /**
   * When it was registered.
   */
  registeredAt: Timestamp;
  /**
   * Its state.
   */
  status: Status;
}
/**
 * An item of `/agents`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "AgentListItem".
 */
export interface AgentListItem {
  /**
   * The agent.
   */
  agentId: AgentId;
  /**
   * The wallet that registered it.
   */
  creator: Address;
  /**
   * When it was registered.
   */
  registeredAt: Timestamp;
  /**
   * Its state.
   */
  status: Status;
}
/**
 * The answer of `/agents`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "AgentPage".
 */
export interface AgentPage {
  /**
   * The agents, by ascending id.
   */
  data: AgentListItem[];
  /**
   * The page size used: what was asked for, cut to the maximum.
   */
  limit: Integer;
  /**
   * The page given.
   */
  page: Integer;
  /**
   * How many agents there are after filtering.
   */
  total: Integer;
  /**
   * How many pages there are.
   */
  totalPages: Integer;
  /**
   * Agents that cannot be read, and are not in the list: without a filter those of this page, else all there are.
   * Absent where there are none.
   */
  unreadable?: AgentId[];
}
/**
 * An agent above another.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Ancestor".
 */
export interface Ancestor {
  /**
   * The agent.
   */
  agentId: AgentId;
  /**
   * Its generation, as registered.
   */
  generation: Integer;
  /**
   * The wallet of the person who is liable for it.
   */
  haftungsperson: Address;
  /**
   * Its status.
   */
  status: Status;
  /**
   * Its own wallet.
   */
  wallet: Address;
}
/**
 * The answer of `/agent/:id/ancestors`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Ancestors".
 */
export interface Ancestors {
  /**
   * The agent asked about.
   */
  agentId: AgentId;
  /**
   * Its parent, that one's parent, and so on up to the root; empty for a root.
   */
  ancestors: Ancestor[];
  /**
   * The block the registry was read at.
   */
  asOf: AsOf;
  /**
   * Why the path ends before the root; absent where it does not.
   */
  note?: string | null;
}
/**
 * One change of a verdict.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Change".
 */
export interface Change {
  /**
   * The agent.
   */
  agentId: AgentId;
  /**
   * The block of the event that announced it, where the node says; else the one it was seen at.
   */
  blockNumber: Integer;
  /**
   * Go on from here with `since`, and this change is behind you.
   */
  cursor: ChangeCursor;
  /**
   * What the verdict was; `null` where the wallet did not have this agent.
   */
  from: Standing | null;
  /**
   * When: a lapse at its second, a registration or an attestation at its own, the rest at its block's.
   */
  time: Timestamp;
  /**
   * What it is; `null` where the wallet does not have this agent any more, because its registration was undone.
   */
  to: Standing | null;
  /**
   * Its wallet.
   */
  wallet: Address;
}
/**
 * What a verdict on an agent comes to.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Standing".
 */
export interface Standing {
  /**
   * What a provider does about its wallet: `provision` while the agent is Active and its attestation current, `request_renewal` while
   * the attestation is not or the agent is Suspended, `deny` once it has ended.
   */
  decision: Decision;
  /**
   * The agent's status.
   */
  status: Status;
}
/**
 * The answer of `/changes`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "ChangeList".
 */
export interface ChangeList {
  /**
   * The block up to which changes are known.
   */
  asOf: IndexedAt;
  /**
   * Changes, oldest first.
   */
  data: Change[];
  /**
   * There are more changes already.
   */
  hasMore: boolean;
  /**
   * How many changes an answer holds at most: what was asked for, cut to the maximum.
   */
  limit: Integer;
  /**
   * Ask with `since` this next time.
   */
  next: ChangeCursor;
}
/**
 * The answer of `/agents/compliance`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "ComplianceList".
 */
export interface ComplianceList {
  /**
   * All of them, or those of the page, the stalest attestation first; equally stale ones by id.
   */
  data: ComplianceListItem[];
  /**
   * The page size used: what was asked for, cut to the maximum. Absent where the whole list was asked for.
   */
  limit?: Integer | null;
  /**
   * The cursor of the next page; absent on the last, and where the whole list was asked for.
   */
  next?: Cursor | null;
  /**
   * How many agents there are.
   */
  total: Integer;
  /**
   * Agents that cannot be read, and are not in the list. Absent where there are none.
   */
  unreadable?: AgentId[];
}
/**
 * An item of `/agents/compliance`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "ComplianceListItem".
 */
export interface ComplianceListItem {
  /**
   * The agent.
   */
  agentId: AgentId;
  /**
   * Where it stands now.
   */
  compliance: Compliance;
  /**
   * The wallet that registered it.
   */
  creator: Address;
  /**
   * Its state.
   */
  status: Status;
}
/**
 * The answer of `/stats/detailed`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "DetailedStats".
 */
export interface DetailedStats {
  /**
   * The RPC endpoint, scheme and host only.
   */
  chain: string;
  /**
   * Compliant agents in percent of all agents, with one decimal place; `"0.0"` where there are none.
   */
  complianceRate: string;
  /**
   * How many agents are compliant.
   */
  compliantCount: Integer;
  /**
   * Agents per generation.
   */
  generationDistribution: {
    [k: string]: Integer;
  };
  /**
   * The last registered agents, newest first.
   */
  recentRegistrations: RecentRegistration[];
  /**
   * The registry's address.
   */
  registryAddress: Address;
  /**
   * Agents per status; all four keys are always there.
   */
  statusDistribution: {
    Active: Integer;
    Revoked: Integer;
    Suspended: Integer;
    Terminated: Integer;
  };
  /**
   * How many agents were ever registered.
   */
  totalAgents: Integer;
  /**
   * Reported revenue in cents, by currency.
   */
  totalRevenue: {
    [k: string]: Integer;
  };
  /**
   * Agents whose record or revenue cannot be read; they count nowhere above but in `totalAgents`, or not with their
   * revenue. Absent where there are none.
   */
  unreadable?: AgentId[];
}
/**
 * An item of `recentRegistrations`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "RecentRegistration".
 */
export interface RecentRegistration {
  /**
   * The agent.
   */
  agentId: AgentId;
  /**
   * The agent's own wallet.
   */
  agentWallet: Address;
  /**
   * The wallet that registered it.
   */
  creator: Address;
  /**
   * The wallet of the person who is liable for it.
   */
  haftungsperson: Address;
  /**
   * When it was registered.
   */
  registeredAt: Timestamp;
  /**
   * Its state.
   */
  status: Status;
}
/**
 * The body of an error.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Error".
 */
export interface Error {
  /**
   * What is wrong, to a program.
   */
  code: ErrorCode;
  /**
   * What is wrong, in words that may change. Of a parameter: its name and its rule.
   */
  error: string;
}
/**
 * A document of evidence: the answer of `/kya/:wallet?evidence=1`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Evidence".
 */
export interface Evidence {
  /**
   * The trie nodes from the header's state root to the registry's account.
   */
  accountProof: Data[];
  /**
   * The registry's balance in wei.
   */
  balance: Quantity;
  /**
   * The block at whose end all this was so.
   */
  blockHash: Hash;
  /**
   * The chain's id. No header holds it: it is the word of whoever made the document.
   */
  chainId: Integer;
  /**
   * The registry's code, by which it is known as this project's `AgentRegistry`. Absent for other code.
   */
  code?: Data;
  /**
   * The hash of the registry's code.
   */
  codeHash: Hash;
  /**
   * The block's header, RLP.
   */
  header: Data;
  /**
   * Which slot is what.
   */
  layout: Layout;
  /**
   * The registry's nonce.
   */
  nonce: Quantity;
  /**
   * The registry, whose account and storage are proved.
   */
  registry: Address;
  /**
   * The root of the registry's storage.
   */
  storageHash: Hash;
  /**
   * The slots that the verdict rests on: the wallet's agent id, the grace period, the record's slots in ascending order, and those
   * of an operational scope of more than 31 bytes. Without an agent, the first two.
   */
  storageProof: StorageProof[];
  /**
   * The verdict at the block's time: the answer of `/kya/:wallet`.
   */
  verdict: Kya;
  /**
   * The version of this shape, and of the verdict's: 1.
   */
  version: Integer;
  /**
   * The wallet that the verdict is about.
   */
  wallet: Address;
}
/**
 * Which storage slot of a registry is what, and the code that it holds for.
 *
 * Slots are as solc numbers them (`storageLayout`); those of a record count from where the mapping puts it. Not for a proxy: its code
 * stays while the code behind it, and with that the layout, changes.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Layout".
 */
export interface Layout {
  /**
   * The slot of `mapping(uint256 agentId => record)`.
   */
  agents: Quantity;
  /**
   * The grace period in seconds.
   */
  attestationGracePeriod: GracePeriod;
  /**
   * The hash of other code, for which its operator vouches. Absent for this project's.
   */
  codeHash?: Hash;
  /**
   * Where the fields of a record are.
   */
  record: RecordLayout;
  /**
   * The slot of `mapping(address wallet => uint256 agentId)`, which is 0 for a wallet without a live agent.
   */
  walletToAgent: Quantity;
}
/**
 * Where the fields of a record are that a verdict is made of.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "RecordLayout".
 */
export interface RecordLayout {
  /**
   * An `address`.
   */
  agentWallet: Field;
  /**
   * An `address`.
   */
  creator: Field;
  /**
   * An `address`.
   */
  haftungsperson: Field;
  /**
   * Unix seconds.
   */
  lastAttestation: Field;
  /**
   * The slot of a `string`.
   */
  operationalScope: Integer;
  /**
   * Unix seconds.
   */
  registeredAt: Field;
  /**
   * The number of a status.
   */
  status: Field;
}
/**
 * A number within a slot.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Field".
 */
export interface Field {
  /**
   * How many bytes it has.
   */
  bytes: Integer;
  /**
   * Bytes from the slot's low end.
   */
  offset: Integer;
  /**
   * Slots from the record's first.
   */
  slot: Integer;
}
/**
 * A slot, and the proof of what it holds.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "StorageProof".
 */
export interface StorageProof {
  /**
   * The slot.
   */
  key: Hash;
  /**
   * The trie nodes from `storageHash` to the slot, or to where it would be.
   */
  proof: Data[];
  /**
   * What it holds.
   */
  value: Quantity;
}
/**
 * The verdict on a wallet (`service.md` section 2), the answer of `/kya/:wallet`.
 *
 * How to read it: compliant means provision; registered but not compliant means ask for an attestation; not
 * registered means deny, or ask for registration.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Kya".
 */
export interface Kya {
  /**
   * The agent, in short; `null` where there is none.
   */
  agent: KyaAgent | null;
  /**
   * The agent's ancestors that are not Active, the nearest first; or `unknown`.
   */
  ancestorsNotActive: Known2;
  /**
   * The block the registry was read at.
   */
  asOf: AsOf;
  /**
   * When the verdict was given, by the host's clock.
   */
  checkedAt: Timestamp;
  /**
   * The last second at which the attestation is current; `null` where the agent is not compliant, and where no time
   * ends it.
   */
  compliantUntil: Timestamp | null;
  /**
   * What to do: it follows from `isRegistered` and `isCompliant`, and from nothing else.
   */
  decision: Decision;
  /**
   * Agents that had the wallet before and have ended, newest first; or `unknown`.
   */
  formerAgents: Known;
  /**
   * Present and true where there are more of them than are shown.
   */
  formerAgentsTruncated?: boolean;
  /**
   * That agent is Active and its attestation current.
   */
  isCompliant: boolean;
  /**
   * A live agent has this wallet.
   */
  isRegistered: boolean;
  /**
   * Why, most telling first.
   */
  reasons: Reason[];
  /**
   * Whether an agent has, or had, the wallet.
   */
  registration: Registration;
  /**
   * Why something is unknown; absent where nothing is.
   */
  unknownBecause?: UnknownBecause | null;
  /**
   * The wallet asked about, checksummed.
   */
  wallet: Address;
}
/**
 * An agent's record, reduced to what a verdict on its wallet needs.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "KyaAgent".
 */
export interface KyaAgent {
  /**
   * The agent's id.
   */
  agentId: AgentId;
  /**
   * The agent's own wallet: the one asked about.
   */
  agentWallet: Address;
  /**
   * The wallet that registered it.
   */
  creator: Address;
  /**
   * The wallet of the person who is liable for it.
   */
  haftungsperson: Address;
  /**
   * When it last attested its compliance.
   */
  lastAttestation: Timestamp;
  /**
   * What it says it is for: free text by whoever registered it.
   */
  operationalScope: string;
  /**
   * When it was registered.
   */
  registeredAt: Timestamp;
  /**
   * Its state.
   */
  status: Status;
}
/**
 * An ancestor that is not Active.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "InactiveAncestor".
 */
export interface InactiveAncestor {
  /**
   * The agent.
   */
  agentId: AgentId;
  /**
   * Its status.
   */
  status: Status;
}
/**
 * An agent that had a wallet before.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "FormerAgent".
 */
export interface FormerAgent {
  /**
   * The agent.
   */
  agentId: AgentId;
  /**
   * When it ended; absent where nothing tells.
   */
  endedAt?: Timestamp | null;
  /**
   * When it was registered.
   */
  registeredAt: Timestamp;
  /**
   * How it ended: Revoked or Terminated.
   */
  status: Status;
}
/**
 * The answer of `/health`, given only where the chain and the registry answered.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Health".
 */
export interface Health {
  /**
   * The registry's address.
   */
  registry: Address;
  /**
   * The RPC endpoint, scheme and host only.
   */
  rpc: string;
  /**
   * Always `ok`.
   */
  status: string;
}
/**
 * What an index says of itself.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "IndexProgress".
 */
export interface IndexProgress {
  /**
   * What the index rests on.
   */
  basis: Basis;
  /**
   * The block that answers are as of; absent where there are none yet.
   */
  block?: Integer | null;
  /**
   * How much of the registry has been read; 100 where answers are made from the index.
   */
  percent: Integer;
  /**
   * Refreshes that had no events to go by, and read every agent.
   */
  refreshesWithoutEvents: Integer;
  /**
   * How many agents there are, by the last block read.
   */
  total: Integer;
  /**
   * Changes that no event announced.
   */
  unannouncedChanges: Integer;
}
/**
 * Why there is no verdict on one wallet of a list.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "KyaFailure".
 */
export interface KyaFailure {
  /**
   * What is wrong, to a program.
   */
  code: ErrorCode;
  /**
   * What is wrong, in words that may change.
   */
  error: string;
  /**
   * The wallet as it was asked for; of something longer than a wallet, the first 64 characters.
   */
  wallet: string;
}
/**
 * The answer of `/kya/:wallet,:wallet...` and of `POST /kya`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "KyaList".
 */
export interface KyaList {
  /**
   * What each comes to, in the order asked.
   */
  data: KyaItem[];
  /**
   * How many wallets were asked for.
   */
  total: Integer;
}
/**
 * An attestation that will lapse.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Lapse".
 */
export interface Lapse {
  /**
   * The agent.
   */
  agentId: AgentId;
  /**
   * The agent's own wallet.
   */
  agentWallet: Address;
  /**
   * The last second at which the agent is compliant, if nobody attests.
   */
  compliantUntil: Timestamp;
}
/**
 * The answer of `/liable/:wallet`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Liable".
 */
export interface Liable {
  /**
   * The block that the answer is as of.
   */
  asOf: IndexedAt;
  /**
   * Agents that are Active, and whose attestation is current.
   */
  compliantCount: Integer;
  /**
   * The person's agents by ascending id, from the cursor on.
   */
  data: AgentSummary[];
  /**
   * Agents that are Active, and whose attestation has lapsed.
   */
  expiredCount: Integer;
  /**
   * The person.
   */
  haftungsperson: Address;
  /**
   * The page size used: what was asked for, cut to the maximum.
   */
  limit: Integer;
  /**
   * The cursor of the next page; absent on the last.
   */
  next?: Cursor | null;
  /**
   * The compliant agents whose attestations lapse next, the soonest first; at most ten.
   */
  nextLapses: Lapse[];
  /**
   * The same per status; all four keys are always there.
   */
  statusDistribution: {
    Active: Integer;
    Revoked: Integer;
    Suspended: Integer;
    Terminated: Integer;
  };
  /**
   * How many agents name this person, whatever their status.
   */
  total: Integer;
  /**
   * Agents of the registry that cannot be read, and count nowhere above. Absent where there are none.
   */
  unreadable?: AgentId[];
}
/**
 * An agent in a lineage tree (`service.md` section 2); the answer of `/agent/:id/lineage` is the root.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "LineageNode".
 */
export interface LineageNode {
  /**
   * The agent.
   */
  agentId: AgentId;
  /**
   * Its children, in order of registration; empty for a leaf.
   */
  children: LineageNode[];
  /**
   * Its generation, as registered.
   */
  generation: Integer;
  /**
   * Why something is not shown; absent where all is.
   */
  note?: string | null;
  /**
   * Its status.
   */
  status: Status;
  /**
   * Present and true where children were cut.
   */
  truncated?: boolean;
  /**
   * Children whose records cannot be read, and which are not shown. Absent where there are none.
   */
  unreadable?: AgentId[];
  /**
   * Its own wallet.
   */
  wallet: Address;
}
/**
 * The answer of `/readyz`, where the service is ready.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Ready".
 */
export interface Ready {
  /**
   * The chain's id (EIP-155).
   */
  chainId: Integer;
  /**
   * How old the newest block is by the host's clock; 0 where that is behind the chain's.
   */
  headAgeSeconds: Integer;
  /**
   * What the registry's index says of itself; absent where there is none.
   */
  index?: IndexProgress | null;
  /**
   * Always true.
   */
  ready: boolean;
  /**
   * The registry, which has code and answers.
   */
  registry: Address;
}
/**
 * All revenue added up (`service.md` section 2), the answer of `/revenue/aggregate`. Amounts are in cents.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "RevenueAggregate".
 */
export interface RevenueAggregate {
  /**
   * Amounts by category.
   */
  byCategory: {
    [k: string]: Integer;
  };
  /**
   * Amounts by currency.
   */
  byCurrency: {
    [k: string]: Integer;
  };
  /**
   * All amounts added up, whatever their currency.
   */
  totalAmount: Integer;
  /**
   * How many reports all agents made.
   */
  totalReports: Integer;
  /**
   * Agents whose reports are too many to read, and not in the sums. Absent where there are none.
   */
  unreadable?: AgentId[];
}
/**
 * The answer of `/agent/:id/revenue`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "RevenueHistory".
 */
export interface RevenueHistory {
  /**
   * The reports, oldest first.
   */
  data: RevenueRecord[];
  /**
   * The most that `data` may hold.
   */
  limit: Integer;
  /**
   * How many of them were passed over.
   */
  offset: Integer;
  /**
   * How many reports the agent made.
   */
  total: Integer;
}
/**
 * One report of revenue (`service.md` section 2).
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "RevenueRecord".
 */
export interface RevenueRecord {
  /**
   * How much, in cents of the currency.
   */
  amount: Integer;
  /**
   * The kind of revenue, in the reporter's own words.
   */
  category: string;
  /**
   * The currency, in the reporter's own words.
   */
  currency: string;
  /**
   * Where it ends.
   */
  periodEnd: Timestamp;
  /**
   * Where the period reported begins, as the reporter says.
   */
  periodStart: Timestamp;
  /**
   * When it was reported.
   */
  reportedAt: Timestamp;
}
/**
 * The answer of `/stats`.
 *
 * This interface was referenced by `Documents`'s JSON-Schema
 * via the `definition` "Stats".
 */
export interface Stats {
  /**
   * The RPC endpoint, scheme and host only.
   */
  chain: string;
  /**
   * The registry's address.
   */
  registryAddress: Address;
  /**
   * How many agents were ever registered.
   */
  totalAgents: Integer;
}
