// One promise, tested in a browser: a context of its own, a front of its own before the Worker, and at the end a look at
// what the page did besides.

import assert from "node:assert/strict";
import { mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";

import { launch } from "./chromium.mjs";
import { eventually } from "./eventually.mjs";
import { Front } from "./front.mjs";
import { Guard } from "./guard.mjs";
import { PICTURES } from "./pictures.mjs";
import { stack } from "./stack.mjs";
import { BrowserWallet } from "./wallet.mjs";

/** How long one test may take, in milliseconds. */
const TIMEOUT = 90_000;

/** How long one action may wait for what it acts on, in milliseconds. */
const PATIENCE = 20_000;

/** @type {import("playwright-core").Browser} */
let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

/**
 * @typedef {object} Options
 * @property {{ width: number, height: number }} [viewport]
 * @property {"light" | "dark"} [colorScheme] what the visitor's system prefers
 * @property {"window.ethereum" | "EIP-6963"} [wallet] how the visitor's wallet, if any, presents itself
 * @property {string} [worker] the Worker behind the page; the stack's first, if not given
 * @property {boolean} [faults] whether answers of 400 and above, and none, are part of the promise
 *
 * @typedef {object} Scene
 * @property {import("playwright-core").Page} page
 * @property {Front} front what the page is served through
 * @property {BrowserWallet} wallet the visitor's wallet; not in the page unless the options say so
 * @property {(hash: string) => Promise<void>} open goes to a view, `"#/agents"` for example
 */

/**
 * A test of the explorer.
 *
 * @param {string} promise its name
 * @param {Options | ((scene: Scene) => Promise<void>)} options
 * @param {(scene: Scene) => Promise<void>} [body]
 */
export function scenario(promise, options, body) {
  if (typeof options === "function") [options, body] = [{}, options];
  test(promise, { timeout: TIMEOUT }, () => play(promise, options, body));
}

async function play(promise, options, body) {
  const picture = join(PICTURES, "failed", `${promise.replace(/[^a-z0-9]+/gi, "-").slice(0, 80)}.png`);
  rmSync(picture, { force: true });
  const front = await Front.start(options.worker ?? stack.worker);
  const { viewport = { width: 1280, height: 800 }, colorScheme = "light" } = options;
  // A visitor elsewhere: what the page shows in local time must not look right by chance.
  const context = await browser.newContext({ viewport, colorScheme, locale: "en-GB", timezoneId: "Asia/Kolkata" });
  try {
    context.setDefaultTimeout(PATIENCE);
    const guard = new Guard([front.url, stack.rpc, stack.otherRpc, stack.silentRpc, stack.relayer, stack.guarded], options.faults ?? false);
    await guard.watch(context);
    const wallet = new BrowserWallet(stack.rpc);
    if (options.wallet) await wallet.install(context, options.wallet);
    await context.addInitScript(noteArrival);
    const page = await context.newPage();
    const open = async (hash) => {
      await page.goto(`${front.url}/${hash}`);
      // Between two views the page hears of the new address a little later than we do; a form must not be filled in before.
      await eventually(async () => assert.ok(await page.evaluate(() => window.arrivedAt === location.hash), hash));
    };
    try {
      await body({ page, front, wallet, open });
    } catch (error) {
      await photograph(page, picture);
      // Often the reason why what was waited for did not come.
      if (guard.problems.length > 0) error.stack += `\n\nWhat the page did besides:\n${guard.problems.join("\n")}`;
      throw error;
    }
    assert.deepEqual(guard.problems, [], "what the page did besides");
  } finally {
    await context.close();
    await front.close();
  }
}

/**
 * Runs in the page: notes the address whose view is on the screen. It receives a change before the page does, in the same task:
 * once it has noted one, no observer outside sees the previous view.
 */
function noteArrival() {
  const note = () => void (window.arrivedAt = location.hash);
  window.addEventListener("hashchange", note);
  note();
}

/** What the page looks like when a test has failed. */
async function photograph(page, path) {
  mkdirSync(dirname(path), { recursive: true });
  // It may be what failed, or be gone; the test's own error is the one to tell.
  await page.screenshot({ path, timeout: 5_000 }).catch(() => {});
}
