/** A part of a view that shows an answer: its room while it loads, the answer, or why there is none. */

import { ask, type Answer } from "../api";
import { h, replace, type Child } from "../dom";
import type { Scope } from "../viewLifetime";
import { failure } from "./failure";
import { verification } from "./verification";

/** Answers to several questions, in their order. */
export type Answers<Documents extends unknown[]> = { [Index in keyof Documents]: Answer<Documents[Index]> };

/**
 * Asks for all paths at once and shows what `draw` makes of the answers, with the means to verify them below. `again` asks
 * anew and draws what comes.
 */
export function answered<Documents extends unknown[]>(
  scope: Scope,
  paths: { [Index in keyof Documents]: string },
  draw: (answers: Answers<Documents>, again: () => void) => Child[],
  placeholder: Child = skeleton(),
): HTMLElement {
  const section = h("div", { class: "answer" }, placeholder);
  const load = async (): Promise<void> => {
    scope.busy(true);
    let shown: Child[];
    try {
      const answers = await Promise.all(paths.map((path) => ask(path, scope.signal)));
      shown = [...draw(answers as Answers<Documents>, again), verification(scope, answers)];
    } catch (error) {
      if (scope.signal.aborted) return;
      shown = [failure(scope, error, again)];
    }
    if (scope.signal.aborted) return;
    replace(section, ...shown);
    scope.busy(false);
  };
  const again = (): void => void load();
  again();
  return section;
}

/** Room for so many lines, until they are there. */
export function skeleton(lines = 8): HTMLElement {
  return h(
    "div",
    { class: "skeleton" },
    h("span", { class: "visually-hidden" }, "Loading"),
    Array.from({ length: lines }, () => h("span", { class: "skeleton-line", "aria-hidden": "true" })),
  );
}
