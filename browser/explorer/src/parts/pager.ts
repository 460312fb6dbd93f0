/** Links to the pages before and after. */

import { h, type Child } from "../dom";

export interface Pages {
  /** What is paged, for screen readers. */
  label: string;
  /** Where one is, such as `1 to 20 of 91`. */
  shown: string;
  /** Addresses; undefined where there is no such page. */
  previous: string | undefined;
  next: string | undefined;
}

export function pager({ label, shown, previous, next }: Pages): HTMLElement {
  return h(
    "nav",
    { class: "pager", "aria-label": `Pages: ${label}` },
    step("Previous page", previous),
    h("span", {}, shown),
    step("Next page", next),
  );
}

/** A link without an address is one that cannot be followed, and keeps its place. */
function step(text: string, href: string | undefined): Child {
  return href === undefined
    ? h("a", { class: "button", role: "link", "aria-disabled": "true" }, text)
    : h("a", { class: "button", href }, text);
}
