/** A table that becomes a row of cards where the page is narrow. */

import type { ComponentChildren } from "preact";

/** On a card, these say themselves what they are. */
const SELF_EVIDENT = new Set(["Agent", "Status", "Field"]);

export interface TableProps {
  /** For screen readers. */
  caption: string;
  head: string[];
  /** Cells, row by row. */
  rows: ComponentChildren[][];
  /** Columns aligned by their last digit. */
  numeric?: number[];
}

/** Styles that take the cells out of the table would take their roles too, so these are stated. */
export function Table({ caption, head, rows, numeric = [] }: TableProps) {
  const align = (column: number): string | undefined => (numeric.includes(column) ? "numeric" : undefined);
  const labelOf = (text = ""): string | undefined => (SELF_EVIDENT.has(text) ? undefined : text);
  return (
    <table class="list" role="table">
      <caption class="visually-hidden">{caption}</caption>
      <thead role="rowgroup">
        <tr role="row">
          {head.map((text, column) => (
            <th key={text} scope="col" role="columnheader" class={align(column)}>
              {text}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((cells, row) => (
          <tr key={row} role="row">
            {cells.map((cell, column) => (
              <td key={column} role="cell" class={align(column)} data-label={labelOf(head[column])}>
                <div>{cell}</div>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
