// Requests of the page: what never answers is an error.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { mock, test } from "node:test";

import { exchange, TIME_LIMIT } from "../src/api";

test("a service that is silent, before its answer or within it, cannot be reached once the time limit is over", async () => {
  globalThis.location ??= { href: "http://page.example/" };
  const server = createServer((request, response) => request.url === "/cut" && response.writeHead(200).write("{"));
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const url = `http://127.0.0.1:${server.address().port}`;
  const { timeout } = AbortSignal;
  const limits = mock.method(AbortSignal, "timeout", () => timeout.call(AbortSignal, 200));
  try {
    for (const path of ["/silent", "/cut"]) {
      const { signal } = new AbortController();
      await assert.rejects(exchange(url + path, { signal }), {
        status: 0,
        code: "UNREACHABLE",
        message: `${url} cannot be reached.`,
      });
    }
    assert.deepEqual(
      limits.mock.calls.map(({ arguments: [limit] }) => limit),
      [TIME_LIMIT, TIME_LIMIT],
    );
    const left = new AbortController();
    const asked = exchange(url, { signal: left.signal });
    left.abort(new Error("the page was left"));
    await assert.rejects(asked, /the page was left/);
  } finally {
    mock.restoreAll();
    server.closeAllConnections();
    server.close();
  }
});
