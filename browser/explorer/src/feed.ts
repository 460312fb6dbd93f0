/**
 * What a page that follows changes shows, and what makes it show something else.
 *
 * ```text
 *   connecting ---- connected ----> live, polling <---- connected ---- interrupted
 *       ^                                |                                  ^
 *       |                                +---------- interrupted -----------+
 *       +-- resume -- paused <-- pause -- (any but ended)
 *                                          any -- ended --> ended
 * ```
 */

import type { Change, ChangeList } from "./documents";
import type { Heard } from "./follow";

/** Rows that are kept. The API has the older ones. */
export const MOST = 100;

export type Phase =
  | { kind: "connecting" }
  /** The service sends changes as they come (server-sent events). */
  | { kind: "live" }
  /** The page polls the service. */
  | { kind: "polling" }
  /** The service does not answer; the page retries. */
  | { kind: "interrupted"; error: unknown }
  /** The visitor paused the feed. */
  | { kind: "paused" }
  /** The feed has ended for good. */
  | { kind: "ended"; error: unknown };

export interface Feed {
  phase: Phase;
  /** Rows, the newest first. */
  changes: Change[];
  /** The cursor of the next request. */
  cursor: string;
  /** Whether older rows were dropped. */
  isCut: boolean;
}

export type Step = Heard | { kind: "paused" } | { kind: "resumed" };

/** A feed that begins with these changes. */
export function begin({ data, next }: ChangeList): Feed {
  return { phase: { kind: "connecting" }, changes: data.toReversed(), cursor: next, isCut: false };
}

export function step(feed: Feed, heard: Step): Feed {
  if (feed.phase.kind === "ended") return feed;
  if (heard.kind === "resumed") return { ...feed, phase: { kind: "connecting" } };
  // A change that arrives after a pause comes again with the same cursor.
  if (feed.phase.kind === "paused") return feed;
  switch (heard.kind) {
    case "connected":
      return toPhase(feed, { kind: heard.isLive ? "live" : "polling" });
    case "changes":
      return append(feed, heard.changes);
    default:
      return toPhase(feed, heard);
  }
}

/** The same object for a feed already in that phase, so that nothing is drawn or read out again. */
function toPhase(feed: Feed, phase: Phase): Feed {
  const isSame = feed.phase.kind === phase.kind && !("error" in phase);
  return isSame ? feed : { ...feed, phase };
}

function append(feed: Feed, changes: Change[]): Feed {
  const all = [...changes.toReversed(), ...feed.changes];
  return {
    ...feed,
    changes: all.slice(0, MOST),
    cursor: changes.at(-1)?.cursor ?? feed.cursor,
    isCut: feed.isCut || all.length > MOST,
  };
}
