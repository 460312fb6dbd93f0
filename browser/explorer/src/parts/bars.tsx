/** A chart that is its own table: one row per value, the bar beside the figure. */

import type { ComponentChildren } from "preact";

import type { Integer } from "../documents";

export interface Bar {
  label: ComponentChildren;
  value: Integer;
  /** The value as text. */
  shown: string;
  /** Sets the bar's colour, see `charts.css`. */
  kind?: string;
}

export interface BarsProps {
  /** What is counted. */
  caption: string;
  head: [string, string];
  rows: Bar[];
  /** How long bars are: in proportion, or by the number of digits where values are too far apart to compare by length. */
  scale?: "linear" | "logarithmic";
}

export function Bars({ caption, head, rows, scale = "linear" }: BarsProps) {
  if (rows.length === 0) return <p class="empty">Nothing reported yet.</p>;
  const length = scale === "linear" ? Number : (value: Integer) => Math.log10(1 + Number(value));
  const longest = Math.max(...rows.map(({ value }) => length(value)));
  return (
    <table class="bars">
      <caption>{caption}</caption>
      <thead class="visually-hidden">
        <tr>
          {head.map((text) => (
            <th key={text} scope="col">
              {text}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map(({ label, value, shown, kind }, row) => (
          <tr key={row}>
            <th scope="row">{label}</th>
            <td>
              <span
                class="bar"
                data-kind={kind}
                aria-hidden="true"
                style={{ "--share": String(longest > 0 ? length(value) / longest : 0) }}
              />
              <span class="bar-value">{shown}</span>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
