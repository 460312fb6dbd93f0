/** The search: one form, on the start page or in the page's head, wherever the visitor is. */

import { h, replace } from "../dom";
import { go, hrefTo } from "../router";

export interface Search {
  element: HTMLFormElement;
  /** Empties it for a new view. */
  reset(): void;
}

export function search(): Search {
  const input = h("input", {
    id: "search",
    type: "search",
    placeholder: "0x… or 11",
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
    "aria-describedby": "search-fault",
  });
  const fault = h("div", { id: "search-fault" });
  const element = h(
    "form",
    { class: "search", role: "search", novalidate: true },
    h("label", { for: "search" }, "Wallet or agent id"),
    h("div", { class: "search-row" }, input, h("button", { type: "submit", class: "primary" }, "Look up")),
    fault,
  );
  const complain = (text: string): void => {
    input.setAttribute("aria-invalid", String(text !== ""));
    replace(fault, text !== "" && h("p", { class: "fault", role: "alert" }, text));
  };
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    const href = target(text);
    complain(
      href === undefined ? "Wallet or agent id must be 0x and 40 hexadecimal digits, or a whole number from 1." : "",
    );
    if (href === undefined) input.focus();
    else go(href);
  });
  return {
    element,
    reset() {
      input.value = "";
      complain("");
    },
  };
}

/** Where a text leads: an id to its agent, a wallet to its verdict. The API judges checksums. */
export function target(text: string): string | undefined {
  if (/^0x[0-9a-f]{40}$/i.test(text)) return hrefTo(["wallet", text]);
  if (/^[0-9]{1,78}$/.test(text) && BigInt(text) > 0n) return hrefTo(["agent", BigInt(text)]);
  return undefined;
}
