/** Small pieces every view is made of: addresses, hashes, times, states, and lists of facts. */

import { announce, h, svg, type Child } from "../dom";
import type { Address, Integer, Status, Timestamp } from "../documents";
import { clock, day, duration } from "../format";
import { hrefTo } from "../router";
import { everySecond, type Scope } from "../viewLifetime";

/** What follows the last characters that stay visible when a long hexadecimal text is shortened. */
const TAIL = 8;

/** An address or hash: whole in the text and the title, shortened only to the eye and only where there is no room. */
export function hex(text: string): HTMLElement {
  return h(
    "span",
    { class: "hex", title: text },
    h("span", { class: "hex-head" }, text.slice(0, -TAIL)),
    h("span", { class: "hex-tail" }, text.slice(-TAIL)),
  );
}

/** An address that leads to its verdict. */
export function walletLink(address: Address): HTMLElement {
  return h("a", { href: hrefTo(["wallet", address]), class: "hex-link" }, hex(address));
}

/** An address or hash with a button that copies it. */
export function copyable(text: string, shown: Node = hex(text), what = "address"): HTMLElement {
  const icon = svg(
    "svg",
    { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" },
    svg("path", { d: "M5.5 4.5v-2h8v9h-2M2.5 4.5h8v9h-8z", fill: "none", stroke: "currentColor", "stroke-width": 1.3 }),
  );
  const button = h(
    "button",
    { type: "button", class: "icon-button", "aria-label": `Copy ${what} ${text}`, title: "Copy" },
    icon,
  );
  button.addEventListener("click", () => {
    navigator.clipboard.writeText(text).then(
      () => {
        button.classList.add("done");
        announce("Copied");
        setTimeout(() => button.classList.remove("done"), 1_500);
      },
      () => announce("The browser does not allow copying"),
    );
  });
  return h("span", { class: "copyable" }, shown, button);
}

/** An agent's id that leads to its page. */
export function agentLink(id: Integer, text = `Agent ${id}`): HTMLElement {
  return h("a", { href: hrefTo(["agent", id]) }, text);
}

/** A moment in the reader's time zone, with the exact one in the title. */
export function time(timestamp: Timestamp, shown: "moment" | "day" = "moment"): HTMLElement {
  const at = shown === "moment" ? clock(timestamp) : "";
  return h(
    "time",
    { datetime: timestamp, title: timestamp },
    day(timestamp),
    at !== "" && h("span", { class: "clock" }, `, ${at}`),
  );
}

/** How long ago, going on by itself. */
export function ago(scope: Scope, timestamp: Timestamp): HTMLElement {
  const shown = h("span", { class: "muted" });
  const then = Date.parse(timestamp);
  everySecond(scope, () => {
    const seconds = (Date.now() - then) / 1_000;
    shown.textContent = seconds < 0 ? "just now" : `${duration(seconds)} ago`;
    // Its two largest units: from a day on a second changes nothing.
    return seconds < 86_400;
  });
  return shown;
}

/** An agent's status, told by word and shape as well as by colour. */
export function badge(status: Status): HTMLElement {
  return h("span", { class: "badge", "data-status": status }, status);
}

/** Terms and what they say. */
export function facts(...rows: ([string, ...Child[]] | false)[]): HTMLElement {
  return h(
    "dl",
    { class: "facts" },
    rows.filter((row) => row !== false).map(([term, ...what]) => h("div", {}, h("dt", {}, term), h("dd", {}, what))),
  );
}

/** A few figures in a row. */
export function figures(...items: [string, Child][]): HTMLElement {
  return h(
    "dl",
    { class: "figures" },
    items.map(([term, figure]) => h("div", {}, h("dt", {}, term), h("dd", {}, figure))),
  );
}

/** On a card, these say themselves what they are. */
const SELF_EVIDENT = new Set(["Agent", "Status", "Field"]);

/**
 * A table; `numeric` columns are aligned by their last digit. Where the page is narrow each row becomes a small card: styles
 * that take the cells out of the table would take their roles too, so these are stated.
 */
export function table(caption: string, head: string[], rows: Child[][], numeric: number[] = []): HTMLElement {
  const align = (column: number): string | undefined => (numeric.includes(column) ? "numeric" : undefined);
  const labelOf = (text = ""): string | undefined => (SELF_EVIDENT.has(text) ? undefined : text);
  return h(
    "table",
    { class: "list", role: "table" },
    h("caption", { class: "visually-hidden" }, caption),
    h(
      "thead",
      { role: "rowgroup" },
      h(
        "tr",
        { role: "row" },
        head.map((text, column) => h("th", { scope: "col", role: "columnheader", class: align(column) }, text)),
      ),
    ),
    h(
      "tbody",
      { role: "rowgroup" },
      rows.map((cells) =>
        h(
          "tr",
          { role: "row" },
          cells.map((cell, column) =>
            h("td", { role: "cell", class: align(column), "data-label": labelOf(head[column]) }, h("div", {}, cell)),
          ),
        ),
      ),
    ),
  );
}
