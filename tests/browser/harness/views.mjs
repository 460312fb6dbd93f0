// The explorer's views as a visitor gets to them: what runs over all of them, `reading/views.test.mjs`, finds them here.

import assert from "node:assert/strict";

import { api } from "./api.mjs";
import { eventually } from "./eventually.mjs";
import { stack } from "./stack.mjs";

/** An address without an agent. */
export const UNREGISTERED = "0x000000000000000000000000000000000000dEaD";

const { agents } = stack;

/** A wallet that has registered agents. */
const OPERATOR = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";

/**
 * @typedef {object} View
 * @property {string} name as files are called
 * @property {string} hash its address
 * @property {boolean} [fitsOnce] whether it is laid out for the window that it finds, and not again
 * @property {boolean} [faults] whether it shows an answer of 400 and above, or none
 * @property {(scene: import("./scenario.mjs").Scene) => Promise<void>} [before] what happens before the visit
 * @property {(scene: import("./scenario.mjs").Scene) => Promise<void>} [after] what the visitor does there
 */

/** @type {View[]} */
export const VIEWS = [
  { name: "home", hash: "#/" },
  { name: "wallet-provision", hash: `#/wallet/${agents.atlas.wallet}` },
  { name: "wallet-expired", hash: `#/wallet/${agents.forgetful.wallet}` },
  { name: "wallet-suspended", hash: `#/wallet/${agents.paused.wallet}` },
  { name: "wallet-deny", hash: `#/wallet/${UNREGISTERED}` },
  { name: "agent", hash: `#/agent/${agents.atlas.id}` },
  { name: "agent-long-scope", hash: `#/agent/${agents.ledger.id}` },
  { name: "liable", hash: `#/liable/${agents.atlas.person}` },
  { name: "liable-unnamed", hash: `#/liable/${UNREGISTERED}` },
  {
    name: "liable-no-index",
    hash: `#/liable/${agents.atlas.person}`,
    faults: true,
    before: async ({ front }) => front.on(/\/liable\//, NO_INDEX),
  },
  { name: "lineage", hash: `#/agent/${agents.atlas.id}/lineage`, fitsOnce: true },
  { name: "lineage-cut", hash: `#/agent/${agents.harbour.id}/lineage`, fitsOnce: true },
  { name: "history", hash: `#/agent/${agents.paused.id}/history` },
  { name: "history-pages", hash: `#/agent/${agents.harbour.id}/history` },
  {
    name: "history-incomplete",
    hash: `#/agent/${agents.atlas.id}/history`,
    before: async ({ front }) => front.on(/\/history/, { rewrite: (body) => body.replace('"complete":true', INCOMPLETE) }),
  },
  {
    name: "history-no-index",
    hash: `#/agent/${agents.atlas.id}/history`,
    faults: true,
    before: async ({ front }) => front.on(/\/history/, NO_INDEX),
  },
  { name: "agents", hash: "#/agents" },
  { name: "agents-by-id", hash: "#/agents?sort=id" },
  { name: "agents-beyond", hash: "#/agents?page=999" },
  { name: "agents-found", hash: `#/agents?q=berth&creator=${OPERATOR}&compliant=false&sort=attestation` },
  { name: "agents-none", hash: "#/agents?q=nonsense" },
  {
    name: "agents-refused",
    hash: "#/agents",
    after: async ({ page }) => {
      await page.getByLabel("Creator").fill("nonsense");
      await page.getByRole("button", { name: "Search", exact: true }).click();
    },
  },
  {
    name: "agents-no-index",
    hash: "#/agents",
    faults: true,
    before: async ({ front }) => front.on(NO_INDEX_FOR_LISTS, NO_INDEX),
  },
  {
    name: "agents-search-no-index",
    hash: "#/agents?q=berth",
    faults: true,
    before: async ({ front }) => front.on(NO_INDEX_FOR_LISTS, NO_INDEX),
  },
  { name: "changes", hash: "#/changes", after: following },
  {
    name: "changes-two",
    hash: "#/changes",
    before: async ({ front }) => front.on(CHANGES_FOLLOWED, { answer: { status: 200, body: await exampleOf("/api/v1/changes") } }),
    after: async ({ page }) => void (await page.getByRole("table", { name: "Changes" }).waitFor()),
  },
  {
    name: "changes-interrupted",
    hash: "#/changes",
    faults: true,
    before: async ({ front }) => front.on(CHANGES_FOLLOWED, { close: true }),
    after: async ({ page }) => void (await page.locator("[data-feed=interrupted]").waitFor()),
  },
  {
    name: "changes-no-index",
    hash: "#/changes",
    faults: true,
    before: async ({ front }) => front.on(/\/changes/, NO_INDEX),
  },
  { name: "statistics", hash: "#/statistics" },
  { name: "register", hash: "#/register" },
  {
    name: "register-refused",
    hash: "#/register",
    after: ({ page }) => page.getByRole("button", { name: "Sign and register" }).click(),
  },
  { name: "ask", hash: "#/ask" },
  { name: "settings", hash: "#/settings" },
  { name: "search-refused", hash: "#/", after: ({ page }) => search(page, "nonsense") },
  {
    name: "verify-agreement",
    hash: `#/agent/${agents.kyoto.id}`,
    before: (scene) => saveSettings(scene, { "RPC URL": stack.rpc }),
    after: async ({ page }) => void (await verify(page)),
  },
  {
    name: "verify-difference",
    hash: `#/agent/${agents.kyoto.id}`,
    before: async (scene) => {
      await saveSettings(scene, { "RPC URL": stack.rpc });
      scene.front.on(/\/agent\/\d+$/, { rewrite: (body) => body.replace('"status":"Active"', '"status":"Suspended"') });
    },
    after: async ({ page }) => void (await verify(page)),
  },
  { name: "unknown-agent", hash: "#/agent/4711", faults: true },
  {
    name: "too-many-requests",
    hash: `#/agent/${agents.atlas.id}`,
    faults: true,
    before: async ({ front }) => front.on(/^\/api\//, TOO_MANY),
  },
  {
    name: "api-down",
    hash: `#/wallet/${agents.kyoto.wallet}`,
    faults: true,
    before: async ({ front }) => front.on(/^\/api\//, { close: true }),
  },
  { name: "no-such-page", hash: "#/nowhere" },
];

/** The note of a history from a node that has pruned events. */
const INCOMPLETE = '"complete":false,"incompleteBecause":"EVENTS_MISSING"';

/** Lists that only an index can answer. */
export const NO_INDEX_FOR_LISTS = /\/agents\?.*(sort|q|haftungsperson|creator|parent|generation|compliant|cursor)=/;

/** The questions that follow changes, behind a cursor. */
export const CHANGES_FOLLOWED = /\/changes\?since=\d/;

/** The limiter's refusal, as it looks half a minute before the window ends. */
export const TOO_MANY = {
  answer: {
    status: 429,
    headers: { "retry-after": "30" },
    body: JSON.stringify({ error: "Rate limit exceeded. Try again in 1 minute.", code: "RATE_LIMITED" }),
  },
};

/** What a service without an index answers where only an index can tell. */
export const NO_INDEX = {
  answer: {
    status: 501,
    body: JSON.stringify({
      error: "This is answered from an index of the registry, and this service keeps none",
      code: "INDEX_REQUIRED",
    }),
  },
};

/** The answer that the API's description has for an example, as text. */
async function exampleOf(path) {
  const { document } = await api("/openapi.json");
  return JSON.stringify(document.paths[path].get.responses["200"].content["application/json"].example);
}

/** Waits until the page follows changes, however. */
export async function following({ page }) {
  await page.locator("[data-feed=live], [data-feed=polling]").waitFor();
}

/** Goes to a view and waits until it has settled. */
export async function visit(scene, view) {
  await view.before?.(scene);
  await scene.open(view.hash);
  await settled(scene.page);
  await view.after?.(scene);
}

/** Waits until the view of the page's address is on the screen, has its heading, and nothing in it is loading. */
export async function settled(page) {
  await eventually(async () => {
    const state = await page.evaluate(() => ({
      hasArrived: window.arrivedAt === location.hash,
      headings: document.querySelectorAll("main h1").length,
      loading: document.querySelectorAll("main[aria-busy=true], main [aria-busy=true]").length,
    }));
    assert.deepEqual(state, { hasArrived: true, headings: 1, loading: 0 });
  });
}

/**
 * How wide the page is, and how much of that the window shows.
 *
 * @returns {Promise<[number, number]>} in CSS pixels; equal where nothing scrolls sideways
 */
export function widths(page) {
  return page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
}

/** Types a question into the search and sends it. */
export async function search(page, question) {
  await page.getByLabel("Wallet or agent id").fill(question);
  await page.getByRole("button", { name: "Look up" }).click();
}

/** Saves settings by their labels, as a visitor does. */
export async function saveSettings({ page, open }, values) {
  await open("#/settings");
  for (const [label, value] of Object.entries(values)) await page.getByLabel(label, { exact: true }).fill(value);
  await page.getByRole("button", { name: "Save settings" }).click();
  await page.getByRole("status").getByText("Saved").waitFor();
}

/**
 * Has the answer on the screen verified.
 *
 * @returns {Promise<{ outcome: string, text: string }>} `agreement`, `difference` or `error`, and all the words
 */
export async function verify(page) {
  await page.getByRole("button", { name: "Verify against the chain" }).click();
  const result = page.locator("[data-verify]");
  await result.waitFor();
  return { outcome: await result.getAttribute("data-verify"), text: await result.innerText() };
}
