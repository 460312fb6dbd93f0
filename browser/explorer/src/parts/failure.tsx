/** What the visitor sees instead of an answer, and how to go on. */

import { useLayoutEffect, useState } from "preact/hooks";

import { ServiceError } from "../api";
import { duration, sentences } from "../format";
import { useNow } from "../hooks";
import { announce } from "./announcer";

/** Explains why there is no answer. `again` asks again; where the service says when, that happens by itself. */
export function Failure({ error, again }: { error: unknown; again?: (() => void) | undefined }) {
  const { title, text, code, retryAfter } = explained(error);
  // The same question would be as wrong again, or as much beyond this service.
  const isHopeless = error instanceof ServiceError && (error.status === 400 || error.status === 501);
  return (
    <div class="failure">
      <div role="alert">
        <h2>{title}</h2>
        {text.map((line) => (
          <p key={line}>{line}</p>
        ))}
        {code !== "" && (
          <p class="muted">
            <code>{code}</code>
          </p>
        )}
      </div>
      {again && retryAfter !== undefined && <Countdown seconds={retryAfter} again={again} />}
      {again && !isHopeless && (
        <p>
          <button type="button" onClick={again}>
            Try again
          </button>
        </p>
      )}
    </div>
  );
}

/** Counts down for the eye alone: a screen reader has heard the reason, and hears when the wait is over. */
function Countdown({ seconds, again }: { seconds: number; again: () => void }) {
  const [end] = useState(() => Date.now() + seconds * 1_000);
  const left = Math.ceil((end - useNow(end)) / 1_000);
  const isOver = left <= 0;
  useLayoutEffect(() => {
    if (!isOver) return;
    announce("Asking again");
    again();
  }, [isOver]);
  return (
    <p class="countdown" aria-hidden="true" key={left}>
      Asking again in {duration(left)}.
    </p>
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
  const text: string[] = [message];
  if (status === 0) text.push("Either it is down, or this device is offline.");
  if (status >= 500 && status !== 501)
    text.push("The registry could not be read just now. This says nothing about any agent.");
  return { title: titleOf(status), text, code, retryAfter };
}

function titleOf(status: number): string {
  if (status === 0) return "No connection";
  if (status === 400) return "The question is not valid";
  if (status === 404) return "Not found";
  if (status === 410) return "Too long away";
  if (status === 501) return "Not available here";
  return status === 429 ? "Too many requests" : "No answer";
}
