// Services in JavaScript that a gate guards, and an agent that signs what it sends them:
//
// node gate-frameworks.mjs GATE ORIGIN CHAIN_ID PRIVATE_KEY
//
// GATE is a daemon's address, or the settings of a gate in process. Prints what became of each request at each service, as
// JSON.

import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import { gzipSync } from "node:zlib";
import { Wallet } from "ethers";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { privateKeyToAccount } from "viem/accounts";
import init, { Gate, LocalGate, forExpress, forFastify, forFetch, forHono } from "../../browser/pkg/gate-node.js";
import { signRequest } from "../../browser/pkg/sign.js";
import { begun } from "../gate/answers.mjs";

const [gateUrl, origin, chainId, key] = process.argv.slice(2);
const [account, wallet] = [privateKeyToAccount(key), new Wallet(key)];
const VIEM = { address: account.address, chainId, signMessage: (raw) => account.signMessage({ message: { raw } }) };
const ETHERS = { address: wallet.address, chainId, signMessage: (message) => wallet.signMessage(message) };

async function contentOf(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

const seen = (agent, wallet, body) => ({ agent, wallet, body });

/** The values of a wallet's header wherever Node has it. */
function everywhere({ headers, headersDistinct, rawHeaders, rawTrailers, trailers }) {
  const lines = [...rawHeaders, ...rawTrailers];
  const raw = lines.filter((_, at) => at % 2 === 1 && /^kya.wallet$/i.test(lines[at - 1]));
  const named = [headers, trailers, headersDistinct].flatMap((fields) =>
    Object.entries(fields ?? {}).flatMap(([name, value]) => (/^kya.wallet$/i.test(name) ? value : [])),
  );
  return [...new Set([...raw, ...named])];
}

const inFetch = (handler) => async (request, response) => {
  const content = await contentOf(request);
  const { method, headers, url } = request;
  const body = content.length > 0 && method !== "GET" ? content : undefined;
  const answer = await handler(new Request(origin + url, { method, headers, body }));
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  response.end(Buffer.from(await answer.arrayBuffer()));
};

/** A service by a framework's own rules; its address. */
const SERVICES = {
  hono: async (gate) => {
    const app = new Hono();
    app.use(forHono(gate));
    app.all("*", async (context) =>
      context.json(seen(context.get("agent"), context.req.header("kya-wallet"), await context.req.text())),
    );
    // Hono's own server for Node is a package; this is what it does.
    return listening(http.createServer(inFetch((request) => app.fetch(request))));
  },
  fetch: async (gate) => {
    const guard = forFetch(gate);
    const handler = async (request) => {
      const result = await guard(request);
      if (result instanceof Response) return result;
      const { agent, request: admitted } = result;
      return Response.json(seen(agent, admitted.headers.get("kya-wallet"), await admitted.text()));
    };
    return listening(http.createServer(inFetch(handler)));
  },
  express: async (gate) => expressApp(forExpress(gate)),
  "express behind express.raw": async (gate) =>
    expressApp(express.raw({ type: () => true, limit: "2mb", inflate: false }), forExpress(gate)),
  fastify: (gate) => fastifyApp(gate),
};

function fastifyApp(gate, options) {
  const app = fastify(options);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
  app.addHook("preHandler", forFastify(gate));
  app.all("/*", async (request) => ({
    ...seen(request.agent, request.headers["kya-wallet"], request.body?.toString("latin1") ?? ""),
    everywhere: everywhere(request.raw),
  }));
  return app.listen({ host: "127.0.0.1", port: 0 });
}

function expressApp(...middleware) {
  const app = express();
  app.use(...middleware);
  app.use((request, response) => {
    const body = Buffer.isBuffer(request.body) ? request.body.toString("latin1") : "";
    response.json({ ...seen(request.agent, request.get("kya-wallet"), body), everywhere: everywhere(request) });
  });
  return listening(http.createServer(app));
}

async function listening(server) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${server.address().port}`;
}

const sign = (request, signer = VIEM) => signRequest(request, signer);

/** Sends a request to a service, byte for byte: HTTP clients rewrite targets. */
function send(service, method, path, headers, body, trailers) {
  const isKnown = body !== undefined && trailers === undefined;
  const length = isKnown ? { "content-length": Buffer.byteLength(body) } : {};
  return new Promise((resolve) => {
    const sent = http.request(service, { method, path, headers: { ...headers, ...length } }, async (response) => {
      const text = (await contentOf(response)).toString();
      resolve({ status: response.statusCode, headers: response.headers, body: text });
    });
    sent.on("error", (error) => resolve({ status: 0, body: JSON.stringify(String(error)) }));
    if (trailers !== undefined) sent.write(body);
    if (trailers !== undefined) sent.addTrailers(trailers);
    sent.end(isKnown ? body : undefined);
  });
}

async function outcomes(framework, gate) {
  const service = await SERVICES[framework](gate);
  const get = await sign(new Request(`${origin}/items?view=full`));
  const signed = Object.fromEntries(get.headers);
  const type = { "content-type": "application/json" };
  const order = '{"amount":"100"}';
  const post = await sign(new Request(`${origin}/orders`, { method: "POST", headers: type, body: order }), ETHERS);
  const posted = Object.fromEntries(post.headers);
  const changed = await sign(new Request(`${origin}/orders`, { method: "POST", headers: type, body: order }));
  const large = "x".repeat(150_000);
  const largePost = await sign(new Request(`${origin}/orders`, { method: "POST", headers: type, body: large }));
  const packed = gzipSync(order);
  const encoding = { ...type, "content-encoding": "gzip" };
  const packedPost = await sign(new Request(`${origin}/orders`, { method: "POST", headers: encoding, body: packed }));
  const trailed = await sign(new Request(`${origin}/orders`, { method: "POST", headers: type, body: order }));
  const spoofed = { ...signed, "KYA-Wallet": "0x1", "x-original-uri": "/other", "x-original-method": "PUT" };
  return {
    get: await send(service, "GET", "/items?view=full", spoofed),
    replayed: await send(service, "GET", "/items?view=full", signed),
    post: await send(service, "POST", "/orders", posted, order),
    changed: await send(service, "POST", "/orders", Object.fromEntries(changed.headers), order.replace("1", "9")),
    large: await send(service, "POST", "/orders", Object.fromEntries(largePost.headers), large),
    packed: await send(service, "POST", "/orders", Object.fromEntries(packedPost.headers), packed),
    "unsigned GET with content": await send(service, "GET", "/items", type, order),
    trailers: await send(service, "POST", "/orders", Object.fromEntries(trailed.headers), order, {
      "KYA-Wallet": "0x1",
    }),
    unsigned: await send(service, "GET", "/items", {}),
    traversal: await send(service, "GET", "/../../refusal/api", {}),
    long: await send(service, "POST", "/orders", type, "x".repeat(200_001)),
  };
}

await init();
const gateOf = (policy = "api", longestContent = 200_000) =>
  gateUrl.startsWith("http")
    ? new Gate({ url: gateUrl, policy, longestContent })
    : begun(() => new LocalGate({ settings: gateUrl, policy, longestContent }));
const printed = {};
for (const framework of Object.keys(SERVICES)) printed[framework] = await outcomes(framework, gateOf());
// What answers there is no gate, and nothing does.
const asked = async (url) => {
  const { admitted, response } = await new Gate({ url, policy: "api" }).admit(new Request(origin));
  return { admitted, status: response?.status };
};
const other = await listening(http.createServer((_request, response) => response.end("{}")));
printed.away = [await asked(other), await asked("http://127.0.0.1:9")];

// What a parser before the gate has made of the content is no content.
const json = { "content-type": "application/json" };
const withParser = fastify();
withParser.addHook("preHandler", forFastify(gateOf()));
withParser.all("/*", async () => "served");
printed.parsed = [];
for (const service of [
  await expressApp(express.json(), forExpress(gateOf())),
  await withParser.listen({ host: "127.0.0.1", port: 0 }),
]) {
  const request = await sign(new Request(`${origin}/orders`, { method: "POST", headers: json, body: '{"a":1}' }));
  const { status, body } = await send(service, "POST", "/orders", Object.fromEntries(request.headers), '{"a":1}');
  printed.parsed.push([status, body.includes("as it came")]);
}

// Hono keeps what a middleware has read, as bytes or as what was made of them.
const honoAfter = (read) => {
  const app = new Hono();
  app.use(async (context, next) => {
    await read(context.req);
    await next();
  });
  app.use(forHono(gateOf()));
  app.onError((error, context) => context.text(error.message, 500));
  app.all("*", async (context) => context.text(await context.req.text()));
  return listening(http.createServer(inFetch((request) => app.fetch(request))));
};
const multipart = "multipart/form-data; boundary=abc";
const part = '--abc\r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n--abc--\r\n';
printed.kept = [];
for (const [read, type, content] of [
  [(request) => request.formData(), multipart, part],
  [(request) => request.text(), "text/plain", "\ufeffhello"],
  [(request) => request.text(), "text/plain", "hello"],
  [(request) => request.text(), "text/plain", "a\ufffdb"],
  [(request) => request.json(), "application/json", '{"a": "\u00e9"}'],
  [(request) => request.arrayBuffer(), "text/plain", "\ufeffhello"],
]) {
  const service = await honoAfter(read);
  const headers = { "content-type": type };
  const request = await sign(new Request(`${origin}/orders`, { method: "POST", headers, body: content }));
  const { status, body } = await send(service, "POST", "/orders", Object.fromEntries(request.headers), content);
  printed.kept.push([status, body.includes("as it came")]);
}

// Content over HTTP/2 says no length: what a parser has read is content all the same.
const overHttp2 = await fastifyApp(gateOf(), { http2: true });
const ordered = async (body) => {
  const request = new Request(`${origin}/orders`, { method: "POST", headers: json, body });
  return Object.fromEntries((await sign(request)).headers);
};
async function sendOverHttp2(headers, body) {
  const client = http2.connect(overHttp2);
  const stream = client.request({ ":method": "POST", ":path": "/orders", ...headers });
  stream.end(body);
  const [answer] = await once(stream, "response");
  const text = (await contentOf(stream)).toString();
  client.close();
  return [answer[":status"], text];
}
const of2 = ([status, text]) => [status, JSON.parse(text).body ?? JSON.parse(text).reason];
printed.http2 = [
  of2(await sendOverHttp2(await ordered("hello"), "hello")),
  of2(await sendOverHttp2(await ordered(undefined), "amount=1000000")),
  of2(await sendOverHttp2(await ordered(undefined))),
];

// A gate that observes changes nothing but its own headers, in whatever order and number they come.
const observing = await expressApp(forExpress(gateOf("observed")), (request, _response, next) => {
  contentOf(request).then((content) => {
    if (request.body === undefined) request.body = Buffer.from(`${content.length} bytes`);
    next();
  }, next);
});
const spoofing = { "KYA-Wallet": "0x1", "KYA-Until": "never", KYA_Liable: "0x1" };
const longer = "x".repeat(3_000_000);
const many = [
  "KYA-Wallet",
  "kya-liable",
  "KYA-Until",
  "KYA-Decision",
  "KYA-Agent-Id",
  "KYA-Verdict",
  "KYA-Liable-Basis",
  "Kya-WALLET",
];
printed.observed = [];
for (const [method, headers, body, trailers] of [
  ["GET", spoofing],
  ["POST", { ...json, ...spoofing }, longer],
  ["POST", json, longer, { "KYA-Wallet": "0x1" }],
  [
    "POST",
    Object.fromEntries((await sign(new Request(`${origin}/orders`, { method: "POST", body: longer }))).headers),
    longer,
  ],
]) {
  const { status, body: text } = await send(observing, method, "/orders", headers, body, trailers);
  printed.observed.push([status, JSON.parse(text).body, JSON.parse(text).everywhere]);
}
const spoofed = Object.fromEntries(many.map((name) => [name, "0x1"]));
// Signed once the gate runs: one in process refuses what was signed in a second before its start.
const guarded = await SERVICES.express(gateOf());
const get = Object.fromEntries((await sign(new Request(`${origin}/items`))).headers);
printed.many = (await send(guarded, "GET", "/items", { ...get, ...spoofed })).status;

// What comes before it may have read the content.
const logged = await honoAfter((request) => request.text());
printed.logged = (await send(logged, "POST", "/orders", await ordered("hello"), "hello")).body;

// Content that is longer than what the daemon reads, and than what this gate does; and a head.
const about = async (policy, longestContent, length, headers = json) => {
  const { admitted, response } = await gateOf(policy, longestContent).ask(
    "POST",
    "/orders",
    headers,
    new Uint8Array(length),
  );
  return admitted ? 200 : [response.status, (await response.json()).reason];
};
printed.long = [
  await about("api", 9 << 20, (8 << 20) + 1),
  await about("api", 10, 20),
  await about("observed", 10, 20),
  await about(
    "api",
    10,
    0,
    Array.from({ length: 1_001 }, (_, at) => [`x-${at}`, "a"]),
  ),
];

// No content has a digest, too, where a request may have some.
printed.digested = [];
for (const method of ["GET", "HEAD", "POST", "DELETE"]) {
  const { headers } = await sign(new Request(origin, { method }));
  if (headers.has("content-digest")) printed.digested.push(method);
}
process.stdout.write(JSON.stringify(printed), () => process.exit(0));
