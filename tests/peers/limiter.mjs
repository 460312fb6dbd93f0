// The rate limit both peers keep: so many requests per minute and client, counted in memory, in windows aligned to the clock.

/** Counts a client's request; how many it has left, or `null` where it has had them all. */
export class Limiter {
  #minute = 0;
  #counts = new Map();

  constructor(limit) {
    this.limit = Number(limit);
  }

  charge(client) {
    const minute = Math.floor(Date.now() / 60_000);
    if (minute !== this.#minute) {
      this.#minute = minute;
      this.#counts.clear();
    }
    const count = (this.#counts.get(client) ?? 0) + 1;
    this.#counts.set(client, count);
    return count > this.limit ? null : this.limit - count;
  }
}
