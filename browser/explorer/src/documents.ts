/** The shapes of the API's answers, as the package declares them for everybody, and the few values the page needs of them. */

import type { Kya, Status } from "../../pkg/index.js";

export type {
  AgentDetail,
  AgentPage,
  DetailedStats,
  Eip1193Provider,
  Evidence,
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

/** In the order of the contract's numbers. */
export const STATUSES: readonly Status[] = ["Active", "Suspended", "Revoked", "Terminated"];

/** ISO 8601, UTC, with milliseconds. */
export type Timestamp = string;
/** 0x and 40 hexadecimal digits, with the EIP-55 checksum. */
export type Address = string;
