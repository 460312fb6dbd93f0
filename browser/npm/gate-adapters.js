// A gate in front of a service, by the rules of its framework.

import { OUTPUT, isOutput, whole } from "./gate-messages.js";

export function forFetch(gate) {
  return async (request) => {
    const result = await gate.admit(request);
    return result.admitted ? result : result.response;
  };
}

export function forHono(gate) {
  return async (context, next) => {
    const { raw } = context.req;
    const result = await gate.admit(raw.bodyUsed ? new Request(raw, { body: await keptBy(context.req) }) : raw);
    if (!result.admitted) return result.response;
    context.req.raw = result.request;
    context.set("agent", result.agent);
    await next();
  };
}

/** The content that a middleware has read: Hono keeps what it was read as, the bytes or a text of all of them. */
async function keptBy({ raw, bodyCache }) {
  const { arrayBuffer, bytes, blob, text } = bodyCache;
  const kept = await (arrayBuffer ?? bytes ?? blob);
  if (kept) return kept;
  const decoded = await text;
  const content = new TextEncoder().encode(decoded ?? "");
  const length = raw.headers.get("content-length");
  // A byte order mark is cut, and what is no UTF-8 replaced. Where the length is right, the digest tells.
  const isOther = length === null ? decoded?.includes("\ufffd") : Number(length) !== content.length;
  if (decoded === undefined || isOther) {
    throw new TypeError("the gate needs the content as it came: a middleware before it has to read an ArrayBuffer");
  }
  return content;
}

export function forExpress(gate) {
  return async (request, response, next) => {
    try {
      const result = await admitNode(gate, request, request);
      if (result.admitted) return next();
      response.status(result.response.status).set(Object.fromEntries(result.response.headers));
      response.end(Buffer.from(await result.response.arrayBuffer()));
    } catch (error) {
      next(error);
    }
  };
}

export function forFastify(gate) {
  return async (request, reply) => {
    const result = await admitNode(gate, request, request.raw);
    if (result.admitted) return;
    reply.code(result.response.status).headers(Object.fromEntries(result.response.headers));
    return reply.send(Buffer.from(await result.response.arrayBuffer()));
  };
}

/**
 * The decision on a framework's request over Node's `raw`. What is admitted gets `agent`, and the gate's headers in place
 * of the client's; content that no parser has read is read, and is its `body`.
 */
async function admitNode(gate, request, raw) {
  const isRead = Buffer.isBuffer(request.body);
  if (hasContent(raw) && raw.readableDidRead && !isRead) {
    throw new TypeError("the gate needs the content as it came: a parser before it has to leave a Buffer");
  }
  const lines = [];
  for (let at = 0; at < raw.rawHeaders.length; at += 2) {
    const name = raw.rawHeaders[at];
    // HTTP/2 has what is no header among them.
    if (!name.startsWith(":")) lines.push([name, raw.rawHeaders[at + 1]]);
  }
  const read = async () => {
    if (isRead) return request.body;
    const putBack = (bytes) => raw.unshift(Buffer.from(bytes.buffer));
    const content = await whole(raw.iterator({ destroyOnReturn: false }), gate.longestContent, putBack);
    if (content !== null) request.body = Buffer.from(content.buffer, content.byteOffset, content.length);
    return content;
  };
  const result = await gate.decide(raw.method, request.originalUrl, lines, hasContent(raw), read);
  if (result.admitted) {
    replaceIn(raw, result.headers);
    request.agent = result.agent;
  }
  return result;
}

/**
 * Whether a request of Node has content, which only HTTP/1.1 says beforehand. What a parser has read of HTTP/2 may be
 * content.
 */
function hasContent({ headers, httpVersionMajor, readableDidRead, readableEnded }) {
  if ("transfer-encoding" in headers) return true;
  if ("content-length" in headers) return Number(headers["content-length"]) > 0;
  return httpVersionMajor > 1 && (readableDidRead || !readableEnded);
}

/** The lines of Node's headers with names that are none of the gate's. */
function ofOthers(lines) {
  const kept = [];
  for (let at = 0; at < lines.length; at += 2) {
    if (!isOutput(lines[at])) kept.push(lines[at], lines[at + 1]);
  }
  return kept;
}

function dropOutput(fields) {
  for (const name of Object.keys(fields ?? {})) if (isOutput(name)) delete fields[name];
  return fields;
}

/** Puts the gate's headers in place of a client's, wherever Node has these. */
function replaceIn(raw, said) {
  // Node makes both of `rawHeaders`, of as many lines as came, when they are first read.
  const { headers, headersDistinct } = raw;
  const values = OUTPUT.map(([name]) => [name, said[name]]).filter(([, value]) => value);
  raw.rawHeaders.splice(0, raw.rawHeaders.length, ...ofOthers(raw.rawHeaders), ...values.flat());
  dropOutput(headers);
  dropOutput(headersDistinct);
  for (const [name, value] of values) {
    headers[name] = value;
    if (headersDistinct) headersDistinct[name] = [value];
  }
  dropFromTrailers(raw);
}

/** Trailers may come later than this, and Node makes them of `rawTrailers` when they are read. */
function dropFromTrailers(raw) {
  const prototype = Object.getPrototypeOf(raw);
  const ownLines = Object.hasOwn(raw, "rawTrailers");
  let [lines, isNodeReading] = [raw.rawTrailers, false];
  const all = () => (ownLines ? lines : Reflect.get(prototype, "rawTrailers", raw)) ?? [];
  const accessor = (name, get, set) =>
    Object.defineProperty(raw, name, { configurable: true, enumerable: true, get, set });
  accessor(
    "rawTrailers",
    () => (isNodeReading ? all() : ofOthers(all())),
    (came) => (lines = came),
  );
  for (const name of ["trailers", "trailersDistinct"]) {
    accessor(name, () => {
      isNodeReading = true;
      const fields = Reflect.get(prototype, name, raw);
      isNodeReading = false;
      return dropOutput(fields);
    });
  }
}
