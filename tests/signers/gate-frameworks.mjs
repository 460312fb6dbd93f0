// Services in JavaScript that a gate guards, and an agent that signs what it sends them:
//
// node gate-frameworks.mjs GATE ORIGIN CHAIN_ID PRIVATE_KEY
//
// Prints what became of each request at each service, as JSON.

import { once } from "node:events";
import http from "node:http";
import { Wallet } from "ethers";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { privateKeyToAccount } from "viem/accounts";
import { Gate, forExpress, forFastify, forHono } from "../../browser/npm/gate.js";
import { signRequest } from "../../browser/npm/sign.js";

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

/** A service by a framework's own rules; its address. */
const SERVICES = {
  hono: async (gate) => {
    const app = new Hono();
    app.use(forHono(gate));
    app.all("*", async (context) =>
      context.json(seen(context.get("agent"), context.req.header("kya-wallet"), await context.req.text())),
    );
    // Hono's own server for Node is a package; this is what it does.
    const server = http.createServer(async (request, response) => {
      const content = await contentOf(request);
      const { method, headers, url } = request;
      const body = content.length > 0 ? content : undefined;
      const answer = await app.fetch(new Request(origin + url, { method, headers, body }));
      response.writeHead(answer.status, Object.fromEntries(answer.headers));
      response.end(Buffer.from(await answer.arrayBuffer()));
    });
    return listening(server);
  },
  express: async (gate) => {
    const app = express();
    app.use(express.raw({ type: () => true }), forExpress(gate));
    app.use((request, response) => {
      const body = Buffer.isBuffer(request.body) ? request.body.toString() : "";
      response.json(seen(request.agent, request.get("kya-wallet"), body));
    });
    return listening(http.createServer(app));
  },
  fastify: async (gate) => {
    const app = fastify();
    app.removeAllContentTypeParsers();
    app.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
    app.addHook("preHandler", forFastify(gate));
    app.all("/*", async (request) =>
      seen(request.agent, request.headers["kya-wallet"], request.body?.toString() ?? ""),
    );
    return app.listen({ host: "127.0.0.1", port: 0 });
  },
};

async function listening(server) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${server.address().port}`;
}

const sign = (request, signer = VIEM) => signRequest(request, signer);

/** Sends a request to a service, byte for byte: HTTP clients rewrite targets. */
function send(service, method, path, headers, body) {
  return new Promise((resolve, reject) => {
    const sent = http.request(service, { method, path, headers }, async (response) => {
      const text = (await contentOf(response)).toString();
      resolve({ status: response.statusCode, headers: response.headers, body: text });
    });
    sent.on("error", reject).end(body);
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
  const spoofed = { ...signed, "kya-wallet": "0x1", "x-original-uri": "/other", "x-original-method": "PUT" };
  return {
    get: await send(service, "GET", "/items?view=full", spoofed),
    replayed: await send(service, "GET", "/items?view=full", signed),
    post: await send(service, "POST", "/orders", posted, order),
    changed: await send(service, "POST", "/orders", Object.fromEntries(changed.headers), order.replace("1", "9")),
    unsigned: await send(service, "GET", "/items", {}),
    traversal: await send(service, "GET", "/../../refusal/api", {}),
    long: await send(service, "POST", "/orders", type, "x".repeat(20_001)),
  };
}

const printed = {};
for (const framework of Object.keys(SERVICES)) {
  printed[framework] = await outcomes(framework, new Gate({ url: gateUrl, policy: "api", longestContent: 20_000 }));
}
// What answers there is no gate, and nothing does.
const asked = async (url) => {
  const { admitted, response } = await new Gate({ url, policy: "api" }).admit(new Request(origin));
  return { admitted, status: response?.status };
};
const other = await listening(http.createServer((_request, response) => response.end("{}")));
printed.away = [await asked(other), await asked("http://127.0.0.1:9")];
console.log(JSON.stringify(printed));
process.exit(0);
