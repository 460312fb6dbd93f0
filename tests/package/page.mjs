// A plain page: a file of HTML and one of script, the package's files beside them, a strict Content-Security-Policy, a wallet.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

import { sharedBrowser } from "../browser/harness/chromium.mjs";
import { Guard } from "../browser/harness/guard.mjs";
import { BrowserWallet } from "../browser/harness/wallet.mjs";
import { serving, stack } from "./setting.mjs";

const PACKAGE = new URL("../../browser/pkg/", import.meta.url);
const TYPES = { js: "text/javascript", wasm: "application/wasm" };

/** The page, which is two files. */
const PAGE = {
  "": `<!doctype html>
    <title>A plain page</title>
    <link rel="icon" href="data:,">
    <script type="module" src="page.js"></script>`,
  "page.js": `
    import initEvidence, { verifyEvidence } from "./evidence.js";
    import init, * as registry from "./index.js";
    import initLocal, * as local from "./local.js";
    import { signRequest } from "./sign.js";
    await Promise.all([init(), initEvidence(), initLocal()]);
    window.registry = registry;
    window.local = local;
    window.signRequest = signRequest;
    window.verifyEvidence = verifyEvidence;
    document.title = "ready";`,
};

/** As strict as the package allows. */
const POLICY = [
  "default-src 'none'",
  "img-src data:",
  "script-src 'self' 'wasm-unsafe-eval'",
  `connect-src 'self' ${stack.rpc} ${stack.silentRpc} ${stack.snapshots}`,
].join("; ");

async function files(request, response) {
  const name = request.url.slice(1);
  response.setHeader("content-security-policy", POLICY);
  response.setHeader("content-type", TYPES[name.split(".")[1]] ?? "text/html");
  response.end(PAGE[name] ?? (await readFile(new URL(name, PACKAGE))));
}

/** Serves the page for as long as `body` runs. */
export const servingThePage = (body) => serving(files, body);

/**
 * Opens the page, whose `window.registry` is the package, and holds it to what pages of this project may do.
 *
 * @param {{ faults?: boolean }} options whether answers of 400 and above, and none, are part of the promise
 * @param {(page: import("playwright-core").Page, wallet: BrowserWallet) => Promise<void>} body
 */
export function inAPage(options, body) {
  return servingThePage(async (url) => {
    const context = await (await sharedBrowser()).newContext();
    try {
      const guard = new Guard();
      guard.begin([url, stack.rpc, stack.silentRpc, stack.snapshots], options.faults ?? false);
      await guard.watch(context);
      const wallet = new BrowserWallet(stack.rpc);
      await wallet.install(context, "window.ethereum");
      const page = await context.newPage();
      await page.goto(url);
      await page.waitForFunction(() => document.title === "ready");
      await body(page, wallet);
      assert.deepEqual(guard.problems, [], "what the page did besides");
    } finally {
      await context.close();
    }
  });
}
