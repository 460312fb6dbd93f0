/** A chart that is its own table: one row per value, the bar beside the figure. */

import type { Integer } from "../documents";
import { h, type Child } from "../dom";

export interface Bar {
  label: Child;
  value: Integer;
  /** The value as text. */
  shown: Child;
  /** Sets the bar's colour, see `charts.css`. */
  kind?: string;
}

/** How long bars are: in proportion, or by the number of digits where values are too far apart to compare by length. */
export type BarScale = "linear" | "logarithmic";

/** The rows, with a caption that says what is counted. */
export function bars(caption: Child, head: [string, string], rows: Bar[], scale: BarScale = "linear"): HTMLElement {
  if (rows.length === 0) return h("p", { class: "empty" }, "Nothing reported yet.");
  const length = scale === "linear" ? Number : (value: Integer) => Math.log10(1 + Number(value));
  const longest = Math.max(...rows.map(({ value }) => length(value)));
  return h(
    "table",
    { class: "bars" },
    h("caption", {}, caption),
    h(
      "thead",
      { class: "visually-hidden" },
      h(
        "tr",
        {},
        head.map((text) => h("th", { scope: "col" }, text)),
      ),
    ),
    h(
      "tbody",
      {},
      rows.map(({ label, value, shown, kind }) => {
        const bar = h("span", { class: "bar", "data-kind": kind, "aria-hidden": "true" });
        bar.style.setProperty("--share", String(longest > 0 ? length(value) / longest : 0));
        return h(
          "tr",
          {},
          h("th", { scope: "row" }, label),
          h("td", {}, bar, h("span", { class: "bar-value" }, shown)),
        );
      }),
    ),
  );
}
