/** Requests to the read API that serves this page, and the errors in place of an answer. */

import { isObject, parse } from "./json";

/** An answer: the exact text for comparing, the document for showing. */
export interface Answer<Document = unknown> {
  path: string;
  text: string;
  document: Document;
  /** Seconds since the API read it from the chain, as it says. */
  ageSeconds: number;
}

/** The API, or the relayer, did not answer with a document. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";

  constructor(
    message: string,
    /** The HTTP status; 0 where nothing came back. */
    readonly status: number,
    /** The service's name for the error. */
    readonly code: string,
    /** Seconds after which to ask again, where the service says so. */
    readonly retryAfter: number | undefined,
  ) {
    super(message);
  }
}

/** Asks the read API. Throws a `ServiceError`, or an `AbortError` once the signal is aborted. */
export async function ask<Document>(path: string, signal: AbortSignal): Promise<Answer<Document>> {
  const { text, document, headers } = await exchange(path, { signal });
  return { path, text, document: document as Document, ageSeconds: Number(headers.get("age") ?? 0) || 0 };
}

/** How long an exchange may take, in milliseconds: longer than services work on an answer. */
export const TIME_LIMIT = 60_000;

/** A signal that is aborted with this one, or after so many milliseconds. */
export function within(signal: AbortSignal, milliseconds = TIME_LIMIT): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(milliseconds)]);
}

/** One HTTP exchange, within the time limit. A good answer is a JSON object. */
export async function exchange(url: string, init: RequestInit & { signal: AbortSignal }): Promise<Reply> {
  const signal = within(init.signal);
  try {
    return await reply(await request(url, { ...init, signal }), signal);
  } catch (error) {
    if (error instanceof ServiceError || init.signal.aborted) throw error;
    throw unreachable(url);
  }
}

/** A good answer, which is a JSON object. */
export interface Reply {
  status: number;
  text: string;
  document: Record<string, unknown>;
  headers: Headers;
}

/** Sends a request. Throws a `ServiceError` where nothing comes back; an answer may be any. */
export async function request(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, { ...init, credentials: "omit", referrerPolicy: "no-referrer" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw unreachable(url);
  }
}

/** The document of an answer, or the `ServiceError` that it is. */
export async function reply(response: Response, signal?: AbortSignal | null): Promise<Reply> {
  let text: string;
  try {
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreachable(response.url);
  }
  const { status, headers } = response;
  let document: unknown;
  try {
    document = parse(text);
  } catch {
    document = undefined;
  }
  if (response.ok && isObject(document)) return { status, text, document, headers };
  const fallback = response.ok ? "It answered something that is no document." : `It answered with HTTP ${status}.`;
  const seconds = Number(headers.get("retry-after") ?? NaN);
  throw serviceError(document, fallback, status, Number.isFinite(seconds) ? seconds : undefined);
}

/** The error that a service's document says it is. */
export function serviceError(document: unknown, fallback: string, status: number, retryAfter?: number): ServiceError {
  const said = isObject(document) ? document : {};
  return new ServiceError(
    typeof said["error"] === "string" ? said["error"] : fallback,
    status,
    typeof said["code"] === "string" ? said["code"] : "",
    retryAfter,
  );
}

/** The error where the service cannot be reached, or breaks off. */
export function unreachable(url: string): ServiceError {
  return new ServiceError(`${hostOf(url)} cannot be reached.`, 0, "UNREACHABLE", undefined);
}

/** Scheme, host and port: all of an address that is fit to show. */
export function hostOf(url: string): string {
  try {
    return new URL(url, location.href).origin;
  } catch {
    return "The address in the settings";
  }
}
