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

/** Rows that are kept; whoever wants more asks the API. */
export const MOST = 100;

export type Phase =
  | { kind: "connecting" }
  /** The service sends changes as they come. */
  | { kind: "live" }
  /** The service is asked from time to time. */
  | { kind: "polling" }
  /** It does not answer; it is asked again. */
  | { kind: "interrupted"; error: unknown }
  /** The visitor wants nothing to move. */
  | { kind: "paused" }
  /** There is nothing more to hear. */
  | { kind: "ended"; error: unknown };

export interface Feed {
  phase: Phase;
  /** The newest first. */
  changes: Change[];
  /** Where to go on. */
  cursor: string;
  /** Older ones are shown no more. */
  isCut: boolean;
}

export type Step = Heard | { kind: "paused" } | { kind: "resumed" };

/** A feed that begins with these changes, and goes on behind them. */
export function begin({ data, next }: ChangeList): Feed {
  return { phase: { kind: "connecting" }, changes: data.toReversed(), cursor: next, isCut: false };
}

export function step(feed: Feed, heard: Step): Feed {
  if (feed.phase.kind === "ended") return feed;
  if (heard.kind === "resumed") return { ...feed, phase: { kind: "connecting" } };
  // What was on its way when the visitor stopped it comes again behind the same cursor.
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

/** The same feed where it is in that phase already: nothing is drawn, or read out, again. */
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
