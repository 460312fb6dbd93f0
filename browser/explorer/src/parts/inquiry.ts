/** A button that asks somebody something, and room for what comes of it. */

import { h, replace, type Child } from "../dom";
import type { Scope } from "../viewLifetime";

/** The button, and the element that its outcome appears in. While it asks, `asking` stands there, and further clicks do nothing. */
export function inquiry(
  scope: Scope,
  label: string,
  asking: string,
  ask: () => Promise<HTMLElement>,
): { button: HTMLElement; result: HTMLElement } {
  const button = h("button", { type: "button" }, label);
  const result = h("div", { "aria-live": "polite" });
  let running = false;
  button.addEventListener("click", () => {
    if (running) return;
    running = true;
    button.setAttribute("aria-disabled", "true");
    replace(result, h("p", { class: "muted" }, asking));
    void ask().then((outcome) => {
      running = false;
      button.removeAttribute("aria-disabled");
      if (!scope.signal.aborted) replace(result, outcome);
    });
  });
  return { button, result };
}

/** The outcome where nothing came of it. */
export function unanswered(attribute: "data-proof" | "data-verify", title: string, text: Child[]): HTMLElement {
  return h(
    "div",
    { class: "result", [attribute]: "error", role: "alert" },
    h("p", {}, h("strong", {}, title)),
    h("p", {}, text),
  );
}
