// One promise, tested in a browser: a page, a front of its own before the Worker, and at the end a look at what the page did
// besides.
//
// Pages are used by one test after the other. What a page stores is its origin's: a test's front is an origin of its own, and
// when the test has ended nothing of it is left.

import assert from "node:assert/strict";
import { mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "./declared.mjs";

import { sharedBrowser } from "./chromium.mjs";
import { eventually } from "./eventually.mjs";
import { Front } from "./front.mjs";
import { Guard } from "./guard.mjs";
import { PICTURES } from "./pictures.mjs";
import { stack } from "./stack.mjs";
import { BrowserWallet } from "./wallet.mjs";

/** How long one test may take, in milliseconds. */
const TIMEOUT = 600_000;

/** How long one action may wait for what it acts on, in milliseconds. */
const PATIENCE = 120_000;

/** What pages may talk to besides their own server, once the visitor has named it. */
const SERVICES = [stack.rpc, stack.otherRpc, stack.silentRpc, stack.relayer, stack.guarded];

/**
 * @typedef {object} Options
 * @property {{ width: number, height: number }} [viewport]
 * @property {"light" | "dark"} [colorScheme] what the visitor's system prefers
 * @property {"window.ethereum" | "EIP-6963"} [wallet] how the visitor's wallet, if any, presents itself
 * @property {string} [worker] the Worker behind the page; the stack's first, if not given
 * @property {boolean} [faults] whether answers of 400 and above, and none, are part of the promise
 * @property {boolean} [alone] whether no other test may use the page, for what cannot be undone there
 *
 * @typedef {object} Scene
 * @property {import("playwright-core").Page} page
 * @property {Front} front what the page is served through
 * @property {Guard} guard what the page did besides
 * @property {BrowserWallet} wallet the visitor's wallet; not in the page unless the options say so
 * @property {import("playwright-core").CDPSession} devtools the page's
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
  const visitor = await takeVisitor(options);
  const { page, guard, wallet, devtools } = visitor;
  guard.begin([front.url, ...SERVICES], options.faults ?? false);
  const open = async (hash) => {
    await page.goto(`${front.url}/${hash}`);
    // Between two views the page hears of the new address a little later than we do; a form must not be filled in before.
    await eventually(async () => assert.ok(await page.evaluate(() => window.arrivedAt === location.hash), hash));
  };
  try {
    await body({ page, front, guard, wallet, devtools, open }).catch(async (error) => {
      await photograph(page, picture);
      // Often the reason why what was waited for did not come.
      if (guard.problems.length > 0) error.stack += `\n\nWhat the page did besides:\n${guard.problems.join("\n")}`;
      throw error;
    });
    assert.deepEqual(guard.problems, [], "what the page did besides");
    await leaveVisitor(visitor, front.url, options);
  } catch (error) {
    await visitor.context.close();
    throw error;
  } finally {
    await front.close();
  }
}

/** Visitors whose pages no test uses now, by how their wallets present themselves. */
const idle = new Map([undefined, "window.ethereum", "EIP-6963"].map((wallet) => [wallet, []]));

/** A visitor with an empty page of the size and theme that a test asks for. */
async function takeVisitor({ wallet: presentation, alone, viewport = { width: 1280, height: 800 }, colorScheme = "light" }) {
  const visitor = (alone ? undefined : idle.get(presentation).pop()) ?? (await newVisitor(presentation));
  visitor.wallet.renew();
  await visitor.page.setViewportSize(viewport);
  // Nothing on its way from one look to the other: nothing to wait for.
  await visitor.page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
  return visitor;
}

async function newVisitor(presentation) {
  // A visitor elsewhere: what the page shows in local time must not look right by chance.
  const context = await (await sharedBrowser()).newContext({ locale: "en-GB", timezoneId: "Asia/Kolkata" });
  context.setDefaultTimeout(PATIENCE);
  const guard = new Guard();
  await guard.watch(context);
  const wallet = new BrowserWallet(stack.rpc);
  if (presentation) await wallet.install(context, presentation);
  await context.addInitScript(noteArrival);
  const page = await context.newPage();
  return { context, guard, wallet, page, devtools: await context.newCDPSession(page) };
}

/** Leaves the visitor to the next test, without anything of this one: its front's port may be another front's later. */
async function leaveVisitor({ context, page, devtools, ...others }, origin, { wallet: presentation, alone }) {
  if (alone) return context.close();
  for (const other of context.pages()) if (other !== page) await other.close();
  await page.goto("about:blank");
  await devtools.send("Storage.clearDataForOrigin", { origin, storageTypes: "all" });
  await devtools.send("Network.clearBrowserCache");
  idle.get(presentation).push({ context, page, devtools, ...others });
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
