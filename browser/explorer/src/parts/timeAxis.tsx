/** An axis of time in the reader's own zone, and places along it. */

import { scaleTime } from "d3-scale";

import type { Timestamp } from "../documents";

/** About how many labels an axis has. */
const TICKS = 4;
const MINUTE = 60_000;
const DAY = 86_400_000;

export interface Axis {
  /** Where a moment is, as a CSS length from the start. */
  place(timestamp: Timestamp): string;
  ticks: Tick[];
}

interface Tick {
  text: string;
  /** Percent of the width. */
  at: number;
}

/** The axis from one moment to another, rounded to whole hours, days or months. */
export function timeAxis(from: Timestamp, to: Timestamp): Axis {
  // Percent of the width, with room for half a mark at either end.
  const scale = scaleTime()
    .domain([Date.parse(from), Date.parse(to)])
    .nice(TICKS)
    .range([2, 98]);
  const [first = 0, last = 0] = scale.domain().map(Number);
  const label = scale.tickFormat(TICKS, labelFor(last - first));
  // Within a few seconds several ticks have the same label; only the first is kept.
  const moments = new Map(
    scale
      .ticks(TICKS)
      .toReversed()
      .map((moment) => [label(moment), moment]),
  );
  return {
    place: (timestamp) => `${scale(Date.parse(timestamp))}%`,
    ticks: [...moments].map(([text, moment]) => ({ text, at: scale(moment) })),
  };
}

/** The axis with its labels: decoration, since every chart has a table beside it. */
export function TimeAxis({ axis }: { axis: Axis }) {
  return (
    <div class="axis" aria-hidden="true">
      {axis.ticks.map(({ text, at }) => (
        // A label at either end grows inwards.
        <span
          key={text}
          class="tick"
          data-end={at < 10 ? "start" : at > 90 ? "end" : undefined}
          style={{ left: `${at}%` }}
        >
          {text}
        </span>
      ))}
    </div>
  );
}

/** How a label is written on an axis of so many milliseconds (d3-time-format). */
function labelFor(span: number): string {
  if (span <= 10 * MINUTE) return "%H:%M:%S";
  if (span <= 2 * DAY) return "%H:%M";
  return span <= 300 * DAY ? "%-d %b" : "%b %Y";
}
