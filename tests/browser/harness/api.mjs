// The read API as its clients see it, to compare the page with.

import { randomInt } from "node:crypto";

import { stack } from "./stack.mjs";

/**
 * Asks the Worker, past every front.
 *
 * @param {string} path
 * @returns {Promise<{ status: number, text: string, document: any }>} numbers beyond 2^53 are exact in the text alone
 */
export async function api(path) {
  const answer = await fetchAgain(`${stack.worker}${path}`, { headers: { "cf-connecting-ip": freshClient() } });
  const text = await answer.text();
  return { status: answer.status, text, document: JSON.parse(text) };
}

/** How often a GET to the Worker is sent again, one after the other, where its connection is lost. */
export const AGAIN = 3;

/**
 * `fetch` for GET requests to the Worker, each on a connection of its own. One whose connection is lost is printed, and sent again.
 *
 * @param {string} url
 * @param {{ headers?: Record<string, string>, signal?: AbortSignal }} [init]
 * @returns {Promise<Response>}
 */
export async function fetchAgain(url, init = {}) {
  // A connection that was kept could be closed by the Worker's server just as it is used again.
  const headers = { ...init.headers, connection: "close" };
  for (let sent = 1; ; sent += 1) {
    let lost;
    try {
      const answer = await fetch(url, { ...init, headers });
      if (sent > AGAIN || !isOfAProxy(answer.status, answer.headers.get("x-request-id"))) return answer;
      lost = `${answer.status} of wrangler's proxy`;
    } catch (error) {
      // An error of the network has a cause, an `AbortError` has none.
      if (sent > AGAIN || !error.cause) throw error;
      lost = error.cause;
    }
    console.log(`sent again: ${new URL(url).pathname}: ${lost}`);
  }
}

/**
 * Whether wrangler's proxy answered, having lost its own connection to the Worker (`tests/wrangler-goes-on.cjs`): the Worker's
 * answers have an id.
 */
export function isOfAProxy(status, requestId) {
  return status === 500 && !requestId;
}

/** A client address that no other request has: random, from the range for documentation. The limiter counts by /64, so those bits differ. */
export function freshClient() {
  const group = () => randomInt(0x10000).toString(16);
  return `2001:db8:${group()}:${group()}::1`;
}
