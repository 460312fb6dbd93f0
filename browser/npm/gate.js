// Admits signed requests of agents (ERC-8128): a `Gate` asks a kya-gate daemon, a `LocalGate` decides in this process.

import init, { Engine, Received } from "./decision.js";
import { loaded } from "./error.js";
import { OUTPUT, contentOf, hasContent, replaced, targetOf } from "./gate-messages.js";
import { MemoryNonces } from "./nonces.js";

export { forExpress, forFastify, forFetch, forHono } from "./gate-adapters.js";
export { MemoryNonces, NonceObject, ObjectNonces, RedisNonces } from "./nonces.js";

export default (source) => loaded(init(source));

/** What belongs to one connection (RFC 9110, section 7.6.1), and the host, which `fetch` takes from the URL. */
const OF_A_CONNECTION = new Set([
  "connection",
  "expect",
  "host",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** Those of them that decide, which `fetch` does not send: the gate is told under other names. */
const TOLD = ["connection", "trailer", "upgrade"];

const passedOn = (headers) => new Headers([...headers].filter(([name]) => !OF_A_CONNECTION.has(name)));

/** A refusal in the daemon's form. */
function problem(status, reason, detail) {
  const title = status === 503 ? "Temporarily unavailable" : "Request not accepted";
  const body = { title, status, detail, reason, discovery: "/.well-known/agent-registry" };
  const headers = { "content-type": "application/problem+json", "cache-control": "no-store" };
  for (const [name] of OUTPUT) headers[name] = "";
  return { admitted: false, response: new Response(JSON.stringify(body), { status, headers }) };
}

const linesOf = (headers) => (headers[Symbol.iterator] ? [...headers] : Object.entries(headers));

const unavailable = (detail) => problem(503, "gate_unavailable", detail);

/** A request that is served, by the gate's headers. */
function admission(valueOf) {
  const said = OUTPUT.map(([name, key]) => [name, key, valueOf(name) || null]);
  return {
    admitted: true,
    agent: Object.fromEntries(said.map(([, key, value]) => [key, value])),
    headers: Object.fromEntries(said.map(([name, , value]) => [name, value])),
  };
}

/** How long a decision in this process may take, as a daemon's. */
const DEADLINE_MILLIS = 5000;

const SIGNATURE = ["signature", "signature-input"];

/** What both gates do with a request. A gate's own are `ask`, `unread`, and whether it `reads` the content. */
class Guard {
  constructor({ longestContent = 1 << 20 }) {
    this.longestContent = longestContent;
  }

  async admit(request) {
    if (request.bodyUsed || request.body?.locked) {
      throw new TypeError("the gate needs the content as it came: the request has to be admitted before it is read");
    }
    const { method, headers } = request;
    const target = targetOf(request);
    // The request keeps its content for the service.
    const read = () => contentOf(request.clone(), this.longestContent);
    const result = await this.decide(method, target, headers, hasContent(request), read);
    if (!result.admitted) return result;
    return { ...result, request: new Request(request, { headers: replaced(headers, result.headers) }) };
  }

  /** The decision on a request whose content, if it has some, is read by `read`: null where that is too long. */
  async decide(method, target, headers, hasContent, read) {
    if (!hasContent) return this.ask(method, target, headers, new Uint8Array());
    if (!this.reads(method, target, headers)) return this.ask(method, target, headers, undefined);
    let content;
    try {
      content = await read();
    } catch {
      return this.unread(method, target, headers, 400);
    }
    if (content === null) return this.unread(method, target, headers, 413);
    return this.ask(method, target, headers, content);
  }
}

export class Gate extends Guard {
  #endpoint;
  #timeoutMillis;
  #fetch;

  constructor({ url, policy, longestContent, timeoutMillis = 6000, fetch }) {
    super({ longestContent });
    if (!/^[A-Za-z0-9_-]+$/.test(policy ?? "")) throw new TypeError("policy must be the name of a policy");
    this.#endpoint = new URL(`/gate/${policy}`, url);
    this.#timeoutMillis = timeoutMillis;
    this.#fetch = fetch ?? ((...question) => globalThis.fetch(...question));
  }

  /** The daemon reads all content, of refused requests, too. */
  reads() {
    return true;
  }

  /**
   * What becomes of a request with content that is too long (413) or broke off (400): whether the policy only observes,
   * the daemon says of the request without its content, and so without its signature.
   */
  async unread(method, target, headers, status) {
    const unsigned = linesOf(headers).filter(([name]) => !SIGNATURE.includes(name.toLowerCase()));
    const result = await this.ask(method, target, unsigned, new Uint8Array());
    if (result.admitted) return result;
    return status === 413
      ? problem(413, "content_too_long", `at most ${this.longestContent} bytes of content are read`)
      : problem(400, "content_incomplete", "the content broke off");
  }

  async ask(method, target, headers, content) {
    if (content.length > this.longestContent) return this.unread(method, target, headers, 413);
    const received = new Headers(headers);
    const asked = passedOn(received);
    for (const name of TOLD) asked.set(`x-original-${name}`, received.get(name) ?? "");
    // `fetch` says it of the content that it sends, and takes no other word for it.
    if (asked.get("content-length") !== String(content.length)) asked.delete("content-length");
    asked.set("x-original-method", method);
    asked.set("x-original-uri", target);
    let answer;
    let body;
    try {
      const signal = AbortSignal.timeout(this.#timeoutMillis);
      const question = { method: "POST", headers: asked, body: content, redirect: "manual", signal };
      answer = await this.#fetch(this.#endpoint, question);
      body = await answer.arrayBuffer();
    } catch {
      return unavailable("the gate does not answer");
    }
    const { status } = answer;
    // A gate's answer has all of its headers, whatever it says.
    if (![200, 400, 401, 403, 413, 431, 503].includes(status) || !OUTPUT.every(([name]) => answer.headers.has(name))) {
      return unavailable(`what answers is no gate: ${status}`);
    }
    if (status === 200) return admission((name) => answer.headers.get(name));
    const passed = passedOn(answer.headers);
    for (const name of ["content-length", "date"]) passed.delete(name);
    return { admitted: false, response: new Response(body, { status, headers: passed }) };
  }
}

export class LocalGate extends Guard {
  #engine;
  #policy;
  #nonces;

  constructor(options) {
    super(options);
    if (options.engine) {
      this.#engine = options.engine;
      this.#nonces = options.nonces;
    } else {
      const { settings, rpc, fetch, report } = options;
      const reach = fetch ?? ((...question) => globalThis.fetch(...question));
      this.#engine = new Engine(settings, rpc, reach, report ?? ((message) => console.warn(`gate: ${message}`)));
      this.#nonces = storeOf(this.#engine, options.nonces);
    }
    if (!this.#engine.has(options.policy ?? "")) throw new TypeError(`policy.${options.policy}: is not configured`);
    this.#policy = options.policy;
  }

  under(policy) {
    const { longestContent } = this;
    return new LocalGate({ engine: this.#engine, nonces: this.#nonces, policy, longestContent });
  }

  get discoveryDocument() {
    return this.#engine.discovery;
  }

  get registryDocument() {
    return this.#engine.registry;
  }

  reads(method, target, headers) {
    const received = receivedOf(method, target, headers);
    try {
      return this.#engine.mayPass(this.#policy, received);
    } finally {
      received.free();
    }
  }

  async unread(method, target, headers, status) {
    return this.#decided(method, target, headers, undefined, status);
  }

  async ask(method, target, headers, content) {
    if (content?.length > this.longestContent) return this.unread(method, target, headers, 413);
    return this.#decided(method, target, headers, content, 0);
  }

  /** The decision, or the outcome of a request that is refused with this status before it. */
  async #decided(method, target, headers, content, refusal) {
    const received = receivedOf(method, target, headers);
    let [isLate, timer] = [false];
    // A decision that comes too late spends no nonce.
    const nonces = { spend: (...nonce) => (isLate ? "late" : this.#nonces.spend(...nonce)) };
    const decision = this.#engine
      .decide(this.#policy, received, content, nonces, refusal)
      .finally(() => received.free());
    const late = new Promise((resolve) => {
      timer = setTimeout(() => resolve((isLate = true)), DEADLINE_MILLIS);
    });
    let answer;
    try {
      answer = await Promise.race([decision, late]);
    } finally {
      clearTimeout(timer);
    }
    if (answer === true) return this.#decided(method, target, headers, undefined, 503);
    const [outcome, status, body, ...lines] = answer;
    const said = [];
    for (let at = 0; at < lines.length; at += 2) said.push([lines[at], lines[at + 1]]);
    if (status === 200) {
      const values = new Map(said);
      return { ...admission((name) => values.get(name)), outcome };
    }
    return { admitted: false, response: new Response(body, { status, headers: said }), outcome };
  }
}

/** A request in the module's memory until it is freed: garbage collection comes late, and not in every runtime. */
const receivedOf = (method, target, headers) => new Received(method, target, linesOf(headers).flat());

/** The store of nonces, where it is the one that the file names. */
function storeOf(engine, nonces) {
  const { capacity, prefix } = engine;
  if (prefix !== undefined && nonces?.prefix !== prefix) {
    throw new TypeError(`redis: pass the option nonces, a RedisNonces with the prefix ${JSON.stringify(prefix)}`);
  }
  if (nonces && capacity !== undefined) throw new TypeError("nonces: means nothing where the option nonces is given");
  if (!nonces && globalThis.navigator?.userAgent === "Cloudflare-Workers") {
    throw new TypeError("nonces: Workers share no memory: pass the option nonces, an ObjectNonces or a RedisNonces");
  }
  return nonces ?? new MemoryNonces(capacity);
}
