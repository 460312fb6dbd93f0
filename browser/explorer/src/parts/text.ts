/**
 * Text from the chain: anybody's, of any length and in any direction.
 *
 * It is isolated, so that a direction override inside ends inside; it wraps; and beyond a few lines it is folded away.
 */

import { h } from "../dom";
import { whole } from "../format";

/** Longer than this is folded. */
const LONG = 320;
/** Zero-width and direction-changing characters, but for the two that join letters and emoji. */
const INVISIBLE = /[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g;

/** A short piece, such as a currency's name, inside a line. */
export function chainWord(text: string): HTMLElement {
  return h("bdi", { class: "chain-word", dir: "auto" }, text === "" ? "(empty)" : text);
}

/** A piece of any length, as a block. */
export function chainText(text: string): HTMLElement {
  if (text === "") return h("p", { class: "muted" }, "Nothing stated");
  const body = h("bdi", { class: "chain-text", dir: "auto" }, text);
  const hidden = text.match(INVISIBLE)?.length ?? 0;
  const warning =
    hidden > 0 &&
    h(
      "p",
      { class: "note" },
      `Contains ${whole(hidden)} invisible or direction-changing character${hidden === 1 ? "" : "s"}.`,
    );
  if (text.length <= LONG) return h("div", {}, body, warning);

  body.classList.add("folded");
  const characters = whole([...text].length);
  const more = h("button", { type: "button", class: "link-button", "aria-expanded": "false" });
  const show = (open: boolean): void => {
    body.classList.toggle("folded", !open);
    more.setAttribute("aria-expanded", String(open));
    more.textContent = open ? "Show less" : `Show all ${characters} characters`;
  };
  more.addEventListener("click", () => show(more.getAttribute("aria-expanded") === "false"));
  show(false);
  return h("div", {}, body, more, warning);
}
