// The second peer: an Express server on Node, with viem and a cache in memory. Prints its address when it listens.

import express from "express";
import { LRUCache } from "lru-cache";

import { Limiter } from "./limiter.mjs";
import { HttpError, Registry, visible } from "./registry.mjs";

const registry = new Registry(process.env);
const limiter = new Limiter(process.env.RATE_LIMIT_PER_MINUTE);
const cache = new LRUCache({ max: 10_000 });

const app = express();
app.disable("x-powered-by");

app.get("/livez", (_request, response) => response.json({ live: true }));

app.use("/api", (request, response, next) => {
  const remaining = limiter.charge(request.ip);
  response.set("X-RateLimit-Remaining", String(remaining ?? 0));
  if (remaining === null) {
    throw new HttpError(429, "RATE_LIMITED", "Rate limit exceeded. Try again in 1 minute.");
  }
  next();
});

app.get(
  "/api/v1/kya/:wallet",
  cached(60, (request) => registry.kya(request.params.wallet)),
);
app.get(
  "/api/v1/agent/:id",
  cached(300, (request) => registry.agent(request.params.id)),
);

app.use(() => {
  throw new HttpError(404, "NOT_FOUND", "Not found");
});
app.use((error, _request, response, _next) => {
  const { status, body } = visible(error);
  response.status(status).json(body);
});

/** A handler that answers from the cache, else from the chain; a fresh answer is kept for so many seconds. */
function cached(seconds, read) {
  return async (request, response) => {
    const key = request.originalUrl;
    let body = cache.get(key);
    response.set("X-Cache", body === undefined ? "MISS" : "HIT");
    if (body === undefined) {
      body = JSON.stringify(await read(request));
      cache.set(key, body, { ttl: seconds * 1000 });
    }
    const left = Math.ceil(cache.getRemainingTTL(key) / 1000);
    response.set("Cache-Control", `public, max-age=${left}`).type("json").send(body);
  };
}

const server = app.listen(Number(process.env.PORT), "127.0.0.1", (error) => {
  if (error) throw error;
  console.log(`Ready on http://127.0.0.1:${server.address().port}`);
});
