/** The shapes of the API's answers, made from its description, and the few values the page needs of them. */

import type { Status } from "../generated/openapi";

export type { Eip1193Provider, Registration } from "../../pkg/index.js";
export type {
  Address,
  AgentDetail,
  AgentHistory,
  AgentList,
  AgentPage,
  Change,
  ChangeList,
  Decision,
  DetailedStats,
  HistoryEvent,
  IncompleteBecause,
  IndexedAt,
  Integer,
  Kya,
  KyaAgent,
  Liable,
  LineageNode,
  Reason,
  RevenueAggregate,
  RevenueHistory,
  RevenueRecord as RevenueReport,
  Standing,
  Stats,
  Status,
  Timestamp,
  UnknownBecause,
} from "../generated/openapi";

/** In the order of the contract's numbers. */
export const STATUSES: readonly Status[] = ["Active", "Suspended", "Revoked", "Terminated"];
