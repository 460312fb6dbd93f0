// The module of a Worker that counts its operations on the data centre's cache and on its KV store. GET /counts is the counts.
import { env } from "cloudflare:workers";
import { memories } from "./measured-memory.mjs";
import * as worker from "WORKER";

export * from "WORKER";

const counts = { match: 0, put: 0, write: 0, list: 0 };
for (const [prototype, operation, name] of [
  [Cache.prototype, "match", "match"],
  [Cache.prototype, "put", "put"],
  [env.RATE_COUNTERS.constructor.prototype, "put", "write"],
  [env.RATE_COUNTERS.constructor.prototype, "list", "list"],
]) {
  const original = prototype[operation];
  prototype[operation] = function (...parameters) {
    counts[name] += 1;
    return original.apply(this, parameters);
  };
}

export default class extends worker.default {
  fetch(request) {
    // Parsing the address would cost what the Worker itself does not.
    if (!request.url.endsWith("/counts")) return super.fetch(request);
    const memory = memories.reduce((sum, { buffer }) => sum + buffer.byteLength, 0);
    return Response.json({ ...counts, memory });
  }
}
