// The module of a Worker that loses requests whose id begins with "lost", as where the runtime ends one for its processor time: they do
// not outlive their client, and do not hear that it disconnects.
import * as worker from "WORKER";

export * from "WORKER";

export default class extends worker.default {
  fetch(request) {
    if (request.headers.get("x-request-id")?.startsWith("lost")) {
      Object.defineProperty(this.ctx, "waitUntil", { value: () => {} });
      Object.defineProperty(request, "signal", { value: new AbortController().signal });
    }
    return super.fetch(request);
  }
}
