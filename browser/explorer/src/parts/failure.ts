/** What the visitor sees instead of an answer, and how to go on. */

import { ServiceError } from "../api";
import { announce, h, type Child } from "../dom";
import { duration, sentences } from "../format";
import { everySecond, type Scope } from "../viewLifetime";

/** Explains why there is no answer. `retry` asks again; where the service says when, that happens by itself. */
export function failure(scope: Scope, error: unknown, retry?: () => void): HTMLElement {
  const { title, text, code, retryAfter } = explained(error);
  // The same question would be as wrong again.
  const isHopeless = error instanceof ServiceError && error.status === 400;
  const again = retry && !isHopeless && h("button", { type: "button", onclick: retry }, "Try again");
  return h(
    "div",
    { class: "failure" },
    h(
      "div",
      { role: "alert" },
      h("h2", {}, title),
      text.map((line) => h("p", {}, line)),
      code !== "" && h("p", { class: "muted" }, h("code", {}, code)),
    ),
    retry && retryAfter !== undefined && countdown(scope, retryAfter, retry),
    again && h("p", {}, again),
  );
}

/** An error in one line, for places without room for more. */
export function sentence(error: unknown): string {
  const { title, text, retryAfter } = explained(error);
  const wait = retryAfter === undefined ? [] : [`It can be asked again in ${duration(retryAfter)}`];
  return sentences(title, ...text, ...wait);
}

function explained(error: unknown): { title: string; text: string[]; code: string; retryAfter?: number | undefined } {
  if (!(error instanceof ServiceError)) {
    const message = error instanceof Error ? error.message : String(error);
    return { title: "This page failed", text: ["What it was given could not be shown.", message], code: "" };
  }
  const { status, message, code, retryAfter } = error;
  const title =
    status === 0
      ? "No connection"
      : status === 429
        ? "Too many requests"
        : status === 404
          ? "Not found"
          : status === 400
            ? "The question is not valid"
            : "No answer";
  const text: string[] = [message];
  if (status === 0) text.push("Either it is down, or this device is offline.");
  if (status >= 500) text.push("The registry could not be read just now. This says nothing about any agent.");
  return { title, text, code, retryAfter };
}

/** Counts down for the eye alone: a screen reader has heard the reason, and hears when the wait is over. */
function countdown(scope: Scope, seconds: number, retry: () => void): Child {
  const ends = Date.now() + seconds * 1_000;
  const shown = h("p", { class: "countdown", "aria-hidden": "true" });
  everySecond(scope, () => {
    if (shown.parentElement !== null && !shown.isConnected) return false;
    const left = Math.ceil((ends - Date.now()) / 1_000);
    shown.textContent = `Asking again in ${duration(left)}.`;
    if (left > 0) return true;
    announce("Asking again");
    retry();
    return false;
  });
  return shown;
}
