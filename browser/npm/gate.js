// Admits signed requests of agents (ERC-8128): a kya-gate daemon decides, this asks it.

/** The headers that the gate sets and no client can, each with its name in `agent`. */
const OUTPUT = [
  ["kya-wallet", "wallet"],
  ["kya-agent-id", "agentId"],
  ["kya-decision", "decision"],
  ["kya-liable", "liable"],
  ["kya-until", "until"],
  ["kya-verdict", "verdict"],
];
/** What belongs to one connection (RFC 9110, section 7.6.1), or is made anew for another one. */
const OF_A_CONNECTION = new Set([
  "connection",
  "content-length",
  "date",
  "expect",
  "host",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

const passedOn = (headers) => new Headers([...headers].filter(([name]) => !OF_A_CONNECTION.has(name)));

function problem(status, title, reason, detail) {
  const headers = { "content-type": "application/problem+json", "cache-control": "no-store" };
  const response = new Response(JSON.stringify({ title, status, detail, reason }), { status, headers });
  return { admitted: false, response };
}

const unavailable = (detail) => problem(503, "Service Unavailable", "gate_unavailable", detail);

/** Reads content of at most so many bytes; null where there is more. */
async function contentOf(request, longest) {
  const chunks = [];
  let length = 0;
  for await (const chunk of request.body ?? []) {
    length += chunk.length;
    if (length > longest) return null;
    chunks.push(chunk);
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}

export class Gate {
  #endpoint;
  #longestContent;
  #timeoutMillis;
  #fetch;

  constructor({ url, policy, longestContent = 1 << 20, timeoutMillis = 6000, fetch }) {
    if (!/^[A-Za-z0-9_-]+$/.test(policy ?? "")) throw new TypeError("policy must be the name of a policy");
    this.#endpoint = new URL(`/gate/${policy}`, url);
    this.#longestContent = longestContent;
    this.#timeoutMillis = timeoutMillis;
    this.#fetch = fetch ?? ((...question) => globalThis.fetch(...question));
  }

  async admit(request) {
    const content = await contentOf(request, this.#longestContent);
    if (content === null) return this.#tooLong();
    const { pathname, search } = new URL(request.url);
    const result = await this.ask(request.method, pathname + search, request.headers, content);
    if (!result.admitted) return result;
    const headers = new Headers(request.headers);
    for (const [name] of OUTPUT) {
      if (result.headers[name]) headers.set(name, result.headers[name]);
      else headers.delete(name);
    }
    const body = content.length > 0 ? content : undefined;
    return { ...result, request: new Request(request.url, { method: request.method, headers, body }) };
  }

  async ask(method, target, headers, content) {
    if (content.length > this.#longestContent) return this.#tooLong();
    const asked = passedOn(new Headers(headers));
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
    if (![200, 400, 401, 403, 503].includes(status) || !OUTPUT.every(([name]) => answer.headers.has(name))) {
      return unavailable(`what answers is no gate: ${status}`);
    }
    if (status !== 200) {
      return { admitted: false, response: new Response(body, { status, headers: passedOn(answer.headers) }) };
    }
    const said = OUTPUT.map(([name, key]) => [name, key, answer.headers.get(name) || null]);
    return {
      admitted: true,
      agent: Object.fromEntries(said.map(([, key, value]) => [key, value])),
      headers: Object.fromEntries(said.map(([name, , value]) => [name, value])),
    };
  }

  #tooLong() {
    const detail = `at most ${this.#longestContent} bytes of content are read`;
    return problem(413, "Content Too Large", "content_too_long", detail);
  }
}

export function forHono(gate) {
  return async (context, next) => {
    const result = await gate.admit(context.req.raw);
    if (!result.admitted) return result.response;
    context.req.raw = result.request;
    context.set("agent", result.agent);
    await next();
  };
}

/** Asks about a request of Node, whose content a framework has read. */
async function admitNode(gate, { method, headers, originalUrl, body }) {
  const hasContent = "transfer-encoding" in headers || Number(headers["content-length"] ?? 0) > 0;
  if (hasContent && !Buffer.isBuffer(body)) throw new TypeError("the gate needs the content as a Buffer");
  const lines = Object.entries(headers).flatMap(([name, value]) => [value].flat().map((line) => [name, line]));
  const result = await gate.ask(method, originalUrl, lines, Buffer.isBuffer(body) ? body : Buffer.alloc(0));
  for (const [name] of result.admitted ? OUTPUT : []) {
    if (result.headers[name]) headers[name] = result.headers[name];
    else delete headers[name];
  }
  return result;
}

export function forExpress(gate) {
  return async (request, response, next) => {
    try {
      const result = await admitNode(gate, request);
      if (result.admitted) {
        request.agent = result.agent;
        return next();
      }
      response.status(result.response.status).set(Object.fromEntries(result.response.headers));
      response.end(Buffer.from(await result.response.arrayBuffer()));
    } catch (error) {
      next(error);
    }
  };
}

export function forFastify(gate) {
  return async (request, reply) => {
    const result = await admitNode(gate, request);
    if (result.admitted) {
      request.agent = result.agent;
      return;
    }
    reply.code(result.response.status).headers(Object.fromEntries(result.response.headers));
    return reply.send(Buffer.from(await result.response.arrayBuffer()));
  };
}
