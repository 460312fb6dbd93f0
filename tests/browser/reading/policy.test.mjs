// What the page is served with, and what it may do. That no test's page breaks its policy, writes an error or talks to third
// parties is the guard's business, in every test.
//
// 1. The Content Security Policy allows the page's own scripts and styles, nothing inline, and no string as markup; the other
//    headers are there.
// 2. Only files with a content hash in their names have a long TTL.
// 3. The whole page, all views of it, talks to no other server than its own until the visitor names one.

import assert from "node:assert/strict";

import { scenario } from "../harness/scenario.mjs";
import { settled, visit, VIEWS } from "../harness/views.mjs";

/** The whole policy: what is not named here is not allowed. */
const POLICY = {
  "default-src": "'none'",
  // WebAssembly is compiled from bytes; that takes a permission of its own, and is none to evaluate text.
  "script-src": "'self' 'wasm-unsafe-eval'",
  "style-src": "'self'",
  "img-src": "'self' data:",
  // The visitor's own RPC and relayer.
  "connect-src": "'self' https: http://127.0.0.1:* http://localhost:*",
  // No string becomes markup or code, in libraries neither.
  "require-trusted-types-for": "'script'",
  "trusted-types": "'none'",
  "base-uri": "'none'",
  "form-action": "'none'",
  "frame-ancestors": "'none'",
};

/** A policy's directives and their sources. */
function directives(policy) {
  return Object.fromEntries(policy.split(";").map((part) => part.trim().split(/ (.*)/s).slice(0, 2)));
}

scenario("the policy allows the page's own scripts and styles, nothing inline, and no markup from strings", async ({ page, open }) => {
  const response = page.waitForResponse((answer) => new URL(answer.url()).pathname === "/");
  await open("#/");
  const headers = (await response).headers();
  assert.deepEqual(directives(headers["content-security-policy"]), POLICY);
  assert.equal(headers["x-content-type-options"], "nosniff");
  assert.equal(headers["x-frame-options"], "DENY");
  assert.equal(headers["referrer-policy"], "no-referrer");
  assert.match(headers["permissions-policy"], /camera=\(\), geolocation=\(\), microphone=\(\)/);
  assert.match(headers["cross-origin-opener-policy"], /^same-origin/);
  await settled(page);
});

scenario("only what changes its name with its contents is kept for long", async ({ page, open }) => {
  const answers = [];
  page.on("response", (answer) => answers.push(answer));
  await open("#/statistics");
  await settled(page);
  const assets = answers.filter((answer) => !new URL(answer.url()).pathname.startsWith("/api/"));
  assert.ok(assets.length >= 3, "page, script, style");
  for (const answer of assets) {
    const { pathname } = new URL(answer.url());
    const isHashed = /[-.][A-Za-z0-9_]{8,}\.(js|css|wasm)$/.test(pathname);
    const isKept = /immutable|max-age=[1-9]\d{4,}/.test(answer.headers()["cache-control"] ?? "");
    assert.equal(isKept, isHashed, `${pathname}: ${answer.headers()["cache-control"]}`);
  }
});

scenario("all views together ask nobody but their own server", { faults: true }, async (scene) => {
  const origins = new Set();
  scene.page.on("request", (request) => origins.add(new URL(request.url()).origin));
  for (const view of VIEWS.filter(({ before }) => !before)) await visit(scene, view);
  assert.deepEqual([...origins], [scene.front.url]);
});
