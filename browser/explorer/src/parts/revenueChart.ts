/** Revenue over time: a row of columns for each currency, since amounts of two currencies cannot be compared. */

import { h, type Child } from "../dom";
import type { RevenueReport } from "../documents";
import { day, units } from "../format";
import { chainWord } from "./text";
import { timeAxis } from "./timeAxis";

/** An agent may name any number of currencies; more than these are in the table only. */
const MOST = 4;

/** Charts of these reports, oldest first; none where a chart would say no more than a line of text. */
export function revenueCharts(reports: RevenueReport[]): Child[] {
  const [first, last] = [reports[0], reports.at(-1)];
  if (first === undefined || last === undefined || reports.length < 2) return [];
  const byCurrency = Map.groupBy(reports, ({ currency }) => currency);
  const charts = [...byCurrency]
    .slice(0, MOST)
    .map(([currency, own]) => chart(currency, own, first.reportedAt, last.reportedAt));
  const left = byCurrency.size - MOST;
  return [
    h("div", { class: "charts" }, charts),
    left > 0 && h("p", { class: "note" }, `${left} more currencies are in the table below.`),
  ];
}

/** One currency's reports, on an axis that all currencies share. */
function chart(currency: string, reports: RevenueReport[], from: string, to: string): HTMLElement {
  const axis = timeAxis(from, to);
  const largest = reports.reduce((most, { amount }) => (amount > most ? amount : most), 0 as RevenueReport["amount"]);
  const columns = reports.map(({ amount, reportedAt }) => {
    const column = h("span", { class: "column", title: `${day(reportedAt)}: ${units(amount)}` });
    axis.place(column, reportedAt);
    column.style.height = `${(100 * Number(amount)) / (Number(largest) || 1)}%`;
    return column;
  });
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, chainWord(currency), h("span", { class: "muted" }, ` up to ${units(largest)} a report`)),
    h("div", { class: "plot", "aria-hidden": "true" }, columns),
    axis.draw(),
    h("p", { class: "visually-hidden" }, "The table below has every figure."),
  );
}
