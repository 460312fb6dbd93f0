// What the page is served with, and what it may do. That no test's page breaks its policy, writes an error or talks to third
// parties is the guard's business, in every test.
//
// 1. The Content Security Policy allows the page's own scripts and styles, nothing inline, and no string as markup; the other
//    headers are there.
// 2. Only files with a content hash in their names have a long TTL.

import assert from "node:assert/strict";

import { test } from "../harness/declared.mjs";
import { scenario } from "../harness/scenario.mjs";
import { stack } from "../harness/stack.mjs";
import { settled } from "../harness/views.mjs";

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

test("the policy allows the page's own scripts and styles, nothing inline, and no markup from strings", async () => {
  const { headers } = await fetch(stack.worker);
  assert.deepEqual(directives(headers.get("content-security-policy")), POLICY);
  assert.equal(headers.get("x-content-type-options"), "nosniff");
  assert.equal(headers.get("x-frame-options"), "DENY");
  assert.equal(headers.get("referrer-policy"), "no-referrer");
  assert.match(headers.get("permissions-policy"), /camera=\(\), geolocation=\(\), microphone=\(\)/);
  assert.match(headers.get("cross-origin-opener-policy"), /^same-origin/);
});

scenario("only what changes its name with its contents is kept for long", async ({ page, front, open }) => {
  await open("#/statistics");
  await settled(page);
  const assets = front.requests.filter((path) => !path.startsWith("/api/"));
  assert.ok(assets.length >= 3, "page, script, style");
  for (const path of assets) {
    const { headers } = await fetch(`${front.url}${path}`);
    const isHashed = /[-.][A-Za-z0-9_]{8,}\.(js|css|wasm)$/.test(path);
    const isKept = /immutable|max-age=[1-9]\d{4,}/.test(headers.get("cache-control") ?? "");
    assert.equal(isKept, isHashed, `${path}: ${headers.get("cache-control")}`);
  }
});
