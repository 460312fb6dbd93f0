/** When agents were registered: a mark for each on a line of time. */

import { h, type Child } from "../dom";
import type { DetailedStats } from "../documents";
import { clock, day } from "../format";
import { timeAxis } from "./timeAxis";

/** The line of these registrations, newest first; none where there is nothing to compare. */
export function timeline(registrations: DetailedStats["recentRegistrations"]): Child {
  const [newest, oldest] = [registrations[0], registrations.at(-1)];
  if (newest === undefined || oldest === undefined || registrations.length < 2) return false;
  const axis = timeAxis(oldest.registeredAt, newest.registeredAt);
  const marks = registrations.map(({ agentId, registeredAt, status }) => {
    const title = `Agent ${agentId}: ${day(registeredAt)}, ${clock(registeredAt)}`;
    const mark = h("span", { class: "mark", "data-kind": status, title });
    axis.place(mark, registeredAt);
    return mark;
  });
  return h(
    "figure",
    { class: "chart" },
    h("div", { class: "plot line", "aria-hidden": "true" }, marks),
    axis.draw(),
    h("figcaption", { class: "visually-hidden" }, "Registrations over time; the table below has each of them."),
  );
}
