/** Moments: when, and how long ago. */

import type { Timestamp } from "../documents";
import { clock, day, duration } from "../format";
import { useNow } from "../hooks";

/** A day in milliseconds. */
const DAY = 86_400_000;

/** A moment in the reader's time zone, with the exact one in the title. */
export function Time({ at, shown = "moment" }: { at: Timestamp; shown?: "moment" | "day" }) {
  const time = shown === "moment" ? clock(at) : "";
  return (
    <time dateTime={at} title={at}>
      {day(at)}
      {time !== "" && <span class="clock">, {time}</span>}
    </time>
  );
}

/** How long ago, going on by itself. */
export function Ago({ since }: { since: Timestamp }) {
  const then = Date.parse(since);
  // Its two largest units: from a day on a second changes nothing.
  const seconds = (useNow(then + DAY) - then) / 1_000;
  const words = seconds < 0 ? "just now" : `${duration(seconds)} ago`;
  // An element of its own for each text: a browser that translates the page has put other nodes in its place.
  return (
    <span class="muted" key={words}>
      {words}
    </span>
  );
}
