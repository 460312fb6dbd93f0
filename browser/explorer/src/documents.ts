/** The shapes of the API's answers, as the package declares them for everybody, and the few values the page needs of them. */

import type { Integer, Kya, Status } from "../../pkg/index.js";

export type {
  AgentDetail,
  AgentPage,
  DetailedStats,
  Eip1193Provider,
  Integer,
  Kya,
  LineageNode,
  Reason,
  Registration,
  RevenueAggregate,
  RevenueHistory,
  RevenueReport,
  Stats,
  Status,
  UnknownBecause,
} from "../../pkg/index.js";

/** The agent of a verdict. */
export type KyaAgent = NonNullable<Kya["agent"]>;

/** What a person is liable for; only a service that keeps an index can tell. */
export interface Liable {
  haftungsperson: Address;
  total: Integer;
  statusDistribution: Record<Status, Integer>;
  /** Active agents whose attestation is current, and whose attestation has lapsed. */
  compliantCount: Integer;
  expiredCount: Integer;
  /** The soonest first. */
  nextLapses: { agentId: Integer; agentWallet: Address; compliantUntil: Timestamp }[];
  /** By id. */
  data: LiableAgent[];
  /** The cursor of the next page; absent on the last. */
  next?: string;
  asOf: { blockNumber: Integer; blockTimestamp: Timestamp };
  /** Agents of the registry that cannot be read, and are not counted; absent where there are none. */
  unreadable?: Integer[];
}

export interface LiableAgent {
  agentId: Integer;
  agentWallet: Address;
  registeredAt: Timestamp;
  status: Status;
  isCompliant: boolean;
}

/** In the order of the contract's numbers. */
export const STATUSES: readonly Status[] = ["Active", "Suspended", "Revoked", "Terminated"];

/** ISO 8601, UTC, with milliseconds. */
export type Timestamp = string;
/** 0x and 40 hexadecimal digits, with the EIP-55 checksum. */
export type Address = string;
