// The first peer: a Worker in JavaScript, with Hono, viem and the Cache API.

import { Hono } from "hono";

import { Limiter } from "./limiter.mjs";
import { HttpError, Registry, visible } from "./registry.mjs";

/** Made by an instance's first request, and kept. */
let registry;
let limiter;

const app = new Hono();

app.get("/livez", (c) => c.json({ live: true }));

app.use("/api/*", async (c, next) => {
  registry ??= new Registry(c.env);
  limiter ??= new Limiter(c.env.RATE_LIMIT_PER_MINUTE);
  const remaining = limiter.charge(c.req.header("cf-connecting-ip") ?? "");
  c.header("X-RateLimit-Remaining", String(remaining ?? 0));
  if (remaining === null) {
    throw new HttpError(429, "RATE_LIMITED", "Rate limit exceeded. Try again in 1 minute.");
  }
  await next();
});

app.get("/api/v1/kya/:wallet", (c) => cached(c, 60, () => registry.kya(c.req.param("wallet"))));
app.get("/api/v1/agent/:id", (c) => cached(c, 300, () => registry.agent(c.req.param("id"))));

app.notFound((c) => c.json(new HttpError(404, "NOT_FOUND", "Not found").body, 404));
app.onError((error, c) => {
  const { status, body } = visible(error);
  return c.json(body, status);
});

/** The answer from the Cache API, else from the chain; a fresh one is kept for so many seconds. */
async function cached(c, seconds, read) {
  const key = new URL(c.req.url).href;
  const hit = await caches.default.match(key);
  if (hit) {
    const response = new Response(hit.body, hit);
    response.headers.set("X-Cache", "HIT");
    return response;
  }
  const headers = { "Content-Type": "application/json", "Cache-Control": `public, max-age=${seconds}` };
  const response = new Response(JSON.stringify(await read()), { headers });
  c.executionCtx.waitUntil(caches.default.put(key, response.clone()));
  response.headers.set("X-Cache", "MISS");
  return response;
}

export default app;
