/**
 * Follows the changes behind a cursor: as server-sent events where the service streams them, else by asking again and again.
 *
 * One request asks for either. `EventSource` would not say why it is refused, nor hand over the comments that tell of a look at the
 * chain at which nothing had changed.
 */

import { createParser } from "eventsource-parser";

import { reply, request, serviceError, ServiceError, unreachable } from "./api";
import type { Change, ChangeList } from "./documents";
import { parse } from "./json";

/** What is heard. */
export type Heard =
  /** The service answers: it goes on by itself (`live`), or is asked again. */
  | { kind: "connected"; isLive: boolean }
  /** Changes, the oldest first. */
  | { kind: "changes"; changes: Change[] }
  /** There is no answer now; it is asked again. */
  | { kind: "interrupted"; error: unknown }
  /** There will be none: the last that is heard. */
  | { kind: "ended"; error: ServiceError };

/** A stream says something at each look at the chain, every ten seconds; one that is silent for so long is broken. In milliseconds. */
const SILENCE = 45_000;
/** How long to wait after a stream's end, after a failure, and for an answer that says no time, in milliseconds. */
const REOPEN = 2_000;
const RETRY = 10_000;
const POLL = 15_000;

/** Tells what is heard behind the cursor until the signal is aborted, or there is nothing more to hear. */
export async function follow(since: string, tell: (heard: Heard) => void, signal: AbortSignal): Promise<void> {
  let cursor = since;
  const hear = (heard: Heard): void => {
    if (signal.aborted) return;
    if (heard.kind === "changes") cursor = heard.changes.at(-1)?.cursor ?? cursor;
    tell(heard);
  };
  while (!signal.aborted) {
    let wait: number;
    try {
      wait = await listen(`/api/v1/changes?since=${encodeURIComponent(cursor)}`, hear, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (isFinal(error)) return hear({ kind: "ended", error });
      hear({ kind: "interrupted", error });
      wait = Math.max(RETRY, retryAfter(error));
    }
    await delay(wait, signal);
  }
}

/** Asks once, and hears the answer to its end. Then it is time to ask again in so many milliseconds. */
async function listen(path: string, hear: (heard: Heard) => void, signal: AbortSignal): Promise<number> {
  const silence = new AbortController();
  const both = AbortSignal.any([signal, silence.signal]);
  const accept = "text/event-stream, application/json;q=0.9";
  const response = await request(path, { signal: both, cache: "no-store", headers: { accept } });
  if (response.ok && response.body !== null && response.headers.get("content-type")?.startsWith("text/event-stream")) {
    await readEvents(response.body, hear, silence, unreachable(path));
    return REOPEN;
  }
  const { document, headers } = await reply(response, both);
  const { data, hasMore } = document as unknown as ChangeList;
  hear({ kind: "connected", isLive: false });
  if (data.length > 0) hear({ kind: "changes", changes: data });
  return hasMore ? 0 : freshFor(headers);
}

/** Hears a stream to its end, or until it has been silent for too long; `broken` is what it throws where the stream breaks off. */
async function readEvents(
  body: ReadableStream<BufferSource>,
  hear: (heard: Heard) => void,
  silence: AbortController,
  broken: ServiceError,
): Promise<void> {
  let changes: Change[] = [];
  const parser = createParser({
    onEvent({ event, data }) {
      if (event === "change") changes.push(parse(data) as Change);
      else if (event === "failure") hear({ kind: "interrupted", error: failureOf(data) });
    },
    // A look at the chain, after what it brought.
    onComment: () => hear({ kind: "connected", isLive: true }),
  });
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const read = async (): Promise<string | undefined> => {
    const timer = setTimeout(() => silence.abort(), SILENCE);
    try {
      return (await reader.read()).value;
    } catch {
      throw broken;
    } finally {
      clearTimeout(timer);
    }
  };
  hear({ kind: "connected", isLive: true });
  for (let text = await read(); text !== undefined; text = await read()) {
    parser.feed(text);
    // What comes at once is told at once.
    if (changes.length > 0) hear({ kind: "changes", changes });
    changes = [];
  }
}

/** The error that an event tells of. */
function failureOf(data: string): ServiceError {
  let document: unknown;
  try {
    document = parse(data);
  } catch {
    document = undefined;
  }
  return serviceError(document, "The registry could not be read just now.", 500);
}

/** Whether the same question would be refused again: a cursor that is no longer good, or a service that cannot tell. */
function isFinal(error: unknown): error is ServiceError {
  return error instanceof ServiceError && [400, 404, 410, 501].includes(error.status);
}

function retryAfter(error: unknown): number {
  return error instanceof ServiceError ? (error.retryAfter ?? 0) * 1_000 : 0;
}

/** For how long the browser would give the same answer again, in milliseconds. */
function freshFor(headers: Headers): number {
  const [, seconds] = /max-age=(\d+)/.exec(headers.get("cache-control") ?? "") ?? [];
  const age = Number(headers.get("age") ?? 0) || 0;
  return seconds === undefined ? POLL : Math.max(POLL, (Number(seconds) - age) * 1_000);
}

function delay(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}
