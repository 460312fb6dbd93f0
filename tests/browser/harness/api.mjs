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
  const answer = await fetchOnce(`${stack.worker}${path}`, { headers: { "cf-connecting-ip": freshClient() } });
  const text = await answer.text();
  return { status: answer.status, text, document: JSON.parse(text) };
}

/** `fetch` on a connection of its own: one that was kept could be closed by the server just as it is used again. */
export function fetchOnce(url, init = {}) {
  return fetch(url, { ...init, headers: { ...init.headers, connection: "close" } });
}

/** A client address that no other request has: random, from the range for documentation. The limiter counts by /64, so those bits differ. */
export function freshClient() {
  const group = () => randomInt(0x10000).toString(16);
  return `2001:db8:${group()}:${group()}::1`;
}
