// Waiting for a condition that the page, the chain or the relayer will bring about.

import { setTimeout as delay } from "node:timers/promises";

/** How soon a condition is looked at again, in milliseconds: at first, and at most after a while, for looking takes the processor. */
const [SOON, LATER] = [20, 250];

/** How long a condition may take, in milliseconds: more than anything takes on a busy machine. */
const PATIENCE = 120_000;

/**
 * Repeats `probe` until it no longer throws; what it threw last is the error when the time is over.
 *
 * @template T
 * @param {() => T | Promise<T>} probe assertions, usually
 * @param {number} [patience] milliseconds
 * @returns {Promise<T>} what the probe returned
 */
export async function eventually(probe, patience = PATIENCE) {
  const deadline = performance.now() + patience;
  for (let pause = SOON; ; pause = Math.min(pause * 1.2, LATER)) {
    try {
      return await probe();
    } catch (error) {
      if (performance.now() >= deadline) throw error;
    }
    await delay(pause);
  }
}
