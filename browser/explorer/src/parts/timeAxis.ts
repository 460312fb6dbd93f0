/** An axis of time in the reader's own zone, and places along it. */

import { scaleTime } from "d3-scale";

import { h } from "../dom";
import type { Timestamp } from "../documents";

/** About how many labels an axis has. */
const TICKS = 4;
const MINUTE = 60_000;
const DAY = 86_400_000;

export interface TimeAxis {
  /** Puts an element at its moment, in the plot above the axis. */
  place(element: HTMLElement, timestamp: Timestamp): void;
  /** The axis with its labels: decoration, since every chart has a table beside it. */
  draw(): HTMLElement;
}

/** The axis from one moment to another, rounded to whole hours, days or months. */
export function timeAxis(from: Timestamp, to: Timestamp): TimeAxis {
  // Percent of the width, with room for half a mark at either end.
  const scale = scaleTime()
    .domain([Date.parse(from), Date.parse(to)])
    .nice(TICKS)
    .range([2, 98]);
  const [first = 0, last = 0] = scale.domain().map(Number);
  const label = scale.tickFormat(TICKS, labelFor(last - first));
  return {
    place(element, timestamp) {
      element.style.left = `${scale(Date.parse(timestamp))}%`;
    },
    draw() {
      // Within a few seconds, several ticks are written alike: the first of them will do.
      const moments = new Map(
        scale
          .ticks(TICKS)
          .toReversed()
          .map((moment) => [label(moment), moment]),
      );
      const ticks = [...moments].map(([text, moment]) => {
        const at = scale(moment);
        // A label at either end grows inwards.
        const end = at < 10 ? "start" : at > 90 ? "end" : undefined;
        const tick = h("span", { class: "tick", "data-end": end }, text);
        tick.style.left = `${at}%`;
        return tick;
      });
      return h("div", { class: "axis", "aria-hidden": "true" }, ticks);
    },
  };
}

/** How a label is written on an axis of so many milliseconds (d3-time-format). */
function labelFor(span: number): string {
  if (span <= 10 * MINUTE) return "%H:%M:%S";
  if (span <= 2 * DAY) return "%H:%M";
  return span <= 300 * DAY ? "%-d %b" : "%b %Y";
}
