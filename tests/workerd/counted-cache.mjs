// The module of a Worker that counts its operations on the data centre's cache. GET /counts is the counts.
import { memories } from "./measured-memory.mjs";
import * as worker from "WORKER";

export * from "WORKER";

const counts = { match: 0, put: 0 };
for (const operation of Object.keys(counts)) {
  const original = Cache.prototype[operation];
  Cache.prototype[operation] = function (...parameters) {
    counts[operation] += 1;
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
