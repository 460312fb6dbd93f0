// An HTTP proxy before the Worker: the address that pages are opened at, and the one that lies, fails or falls silent.
//
// Each request is another client's to the Worker's rate limit, as the visitors of a public page are.

import { Agent, createServer, request as httpRequest } from "node:http";

import { freshClient } from "./api.mjs";

/**
 * The treatment of requests with a path that the rule matches.
 *
 * @typedef {object} Rule
 * @property {(body: string) => string} [rewrite] changes the body of the Worker's answer, which browsers then do not keep
 * @property {Record<string, string>} [headers] what the request says instead, such as what it accepts
 * @property {{ status: number, body?: string, headers?: Record<string, string> }} [answer] instead of the Worker's
 * @property {boolean} [close] the connection is closed without an answer
 * @property {Promise<unknown>} [hold] the request goes on to the Worker when this is settled
 */

/** A connection for each request: one kept could be closed by the Worker's server just as it is used again. */
const ONCE = new Agent({ keepAlive: false });

export class Front {
  #server;
  #upstream;
  /** @type {{ path: RegExp, rule: Rule }[]} */
  #rules = [];

  /** Paths with their queries, in the order in which they were asked for. */
  requests = [];

  /**
   * @param {string} upstream the Worker's address
   * @returns {Promise<Front>} listening on a free port
   */
  static async start(upstream) {
    const front = new Front();
    front.#upstream = upstream;
    front.#server = createServer((request, response) => void front.#serve(request, response));
    await new Promise((done) => front.#server.listen(0, "127.0.0.1", done));
    return front;
  }

  /** Those to the API: when a browser asks for the page's icon is its own affair. */
  get apiRequests() {
    return this.requests.filter((path) => path.startsWith("/api/"));
  }

  /** Where pages find it. */
  get url() {
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  /**
   * From now on `rule` holds for paths that match; a later rule goes before an earlier one.
   *
   * @param {RegExp} path
   * @param {Rule} rule
   */
  on(path, rule) {
    this.#rules.unshift({ path, rule });
  }

  /** Forgets all rules. */
  heal() {
    this.#rules = [];
  }

  /** Breaks off all answers in progress. */
  drop() {
    this.#server.closeAllConnections();
  }

  /** Closes the port and every connection. */
  async close() {
    this.#server.closeAllConnections();
    await new Promise((done) => this.#server.close(done));
  }

  async #serve(request, response) {
    this.requests.push(request.url);
    const rule = this.#rules.find(({ path }) => path.test(request.url))?.rule ?? {};
    await rule.hold;
    if (rule.close) {
      request.socket.destroy();
    } else if (rule.answer) {
      const { status, body = "", headers = {} } = rule.answer;
      response.writeHead(status, { "content-type": "application/json", ...headers }).end(body);
    } else {
      this.#forward(request, response, rule);
    }
  }

  #forward(request, response, rule) {
    const { rewrite, headers: instead = {} } = rule;
    const headers = { ...request.headers, ...instead, "cf-connecting-ip": freshClient() };
    // A body that is to be changed has to be readable, and whole.
    if (rewrite) {
      headers["accept-encoding"] = "identity";
      delete headers["if-none-match"];
    }
    const upstream = httpRequest(`${this.#upstream}${request.url}`, { agent: ONCE, method: request.method, headers });
    upstream.on("error", () => request.socket.destroy());
    // A stream without a listener would go on to its end.
    response.on("close", () => upstream.destroy());
    upstream.on("response", async (answer) => {
      if (!rewrite) {
        response.writeHead(answer.statusCode, answer.rawHeaders);
        answer.pipe(response);
        return;
      }
      const body = rewrite(Buffer.concat(await answer.toArray()).toString());
      const { "content-length": _length, "transfer-encoding": _encoding, etag: _etag, ...kept } = answer.headers;
      response.writeHead(answer.statusCode, { ...kept, "cache-control": "no-store" }).end(body);
    });
    request.pipe(upstream);
  }
}
