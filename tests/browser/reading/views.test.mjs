// What holds in every view: accessibility, layout, and whom it asks.
//
// 1. axe-core finds nothing, in either theme, on a desktop and on a phone. All of its rules run, best practices included; in the
//    dark theme those about colours, since nothing else differs there. What a machine cannot judge is in `keyboard.test.mjs` and in
//    the roles and names by which all tests find things.
// 2. Nothing scrolls sideways at 360, 768 or 1280 px.
// 3. Nothing jumps while it loads: the cumulative layout shift stays below 0.1, on a phone and on a desktop.
// 4. It asks no other server than its own until the visitor names one.
// 5. What ties a liable wallet to an agent can be read on a phone, whichever it is: on the agent's page, and on the person's.
// 6. Every run leaves pictures of every view on a phone and on a desktop, in both themes, in `target/screenshots`; with
//    `UPDATE_SCREENSHOTS=1` the README's are renewed.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";

import { DOCS, PICTURES } from "../harness/pictures.mjs";
import { scenario } from "../harness/scenario.mjs";
import { stack } from "../harness/stack.mjs";
import { settled, visit, VIEWS, widths } from "../harness/views.mjs";

const [DESKTOP, TABLET, PHONE] = [1280, 768, 360];

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** axe's options by theme. */
const RULES = {
  light: { resultTypes: ["violations"] },
  dark: { resultTypes: ["violations"], runOnly: ["color-contrast", "link-in-text-block"] },
};

/** What users hardly notice, by the Web Vitals. */
const MOST_SHIFT = 0.1;

/** The README's pictures: a verdict and a lineage. */
const README = [
  { name: "explorer-verdict", view: "wallet-provision", colorScheme: "light", viewport: { width: 1280, height: 690 } },
  { name: "explorer-lineage", view: "lineage", colorScheme: "dark", viewport: { width: 1280, height: 690 } },
];

mkdirSync(PICTURES, { recursive: true });

for (const view of VIEWS) {
  scenario(`${view.name} is accessible, keeps to its width and place, and is pictured`, { faults: view.faults }, async (scene) => {
    const { page, front, guard } = scene;
    if (view.before || view.after) await arrive(scene, view);
    else for (const width of [PHONE, DESKTOP]) await loadInPlace(scene, view, width);
    for (const width of [DESKTOP, TABLET, PHONE]) {
      await page.setViewportSize({ width, height: 800 });
      if (view.fitsOnce) await arrive(scene, view);
      await looksRight(scene, view.name, width);
    }
    if (!view.before) assert.deepEqual([...guard.origins], [front.url]);
  });
}

const BASES = ["accepted", "registered", "attested", "named", "unknown"];

scenario("each basis can be read on a phone, in both themes", { viewport: { width: PHONE, height: 800 } }, async (scene) => {
  const { page, front } = scene;
  const { atlas, harbour } = stack.agents;
  for (const [name, bases, hash] of [
    ...BASES.map((basis) => [`agent-${basis}`, [basis], `#/agent/${atlas.id}`]),
    ["liable-each-basis", BASES, `#/liable/${harbour.person}`],
  ]) {
    front.on(/\/(agent|liable)\//, { rewrite: (body) => withBases(body, bases) });
    await arrive(scene, { hash });
    const shown = await page.locator("[data-basis]").evaluateAll((all) => all.map(({ dataset }) => dataset.basis));
    assert.deepEqual(new Set(shown), new Set(bases), name);
    await looksRight(scene, name, PHONE);
  }
});

/** An answer in which the agents have these bases, in turn. */
function withBases(body, bases) {
  let agents = 0;
  return body.replace(/"basis":"[a-z]+"(,"attestedAt":"[^"]+")?/g, () => {
    const basis = bases[agents++ % bases.length];
    return `"basis":"${basis}"${basis === "attested" ? ',"attestedAt":"2026-07-01T12:00:00.000Z"' : ""}`;
  });
}

/** Holds the page to its width; on a phone and on a desktop to axe's rules in both themes, where it is pictured, too. */
async function looksRight({ page, devtools }, name, width) {
  const [whole, shown] = await widths(page);
  assert.ok(whole <= shown, `${name}: ${whole} px in a window of ${shown}`);
  if (width === TABLET) return;
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await findings(page, RULES[colorScheme]), [], `${name}: ${width} px, ${colorScheme}`);
    const { data } = await devtools.send("Page.captureScreenshot", { captureBeyondViewport: true, optimizeForSpeed: true });
    await writeFile(join(PICTURES, `${name}-${width}-${colorScheme}.png`), data, "base64");
  }
}

/** Visits a view in a new document. */
async function arrive(scene, view) {
  await leave(scene);
  await visit(scene, view);
}

/** Leaves the page, so that the same address is a new document. */
async function leave({ page }) {
  if (page.url() !== "about:blank") await page.goto("about:blank");
}

/** Loads a view in a window of this width, where nothing jumps. */
async function loadInPlace(scene, view, width) {
  const { page, front, open } = scene;
  await page.setViewportSize({ width, height: 800 });
  // The answers come when the page has been painted without them, as over a slow network.
  let release;
  front.on(/^\/api\//, { hold: new Promise((done) => (release = done)) });
  await leave(scene);
  await open(view.hash);
  await page.locator("main h1").waitFor();
  await page.evaluate(observeShifts);
  await page.evaluate(shiftSoFar);
  release();
  await settled(page);
  const shift = await page.evaluate(shiftSoFar);
  assert.ok(shift < MOST_SHIFT, `at ${width} px: ${shift}`);
}

/** Runs in the page: from now on, and from its beginning, shifts are added up. */
function observeShifts() {
  window.shifts = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.shifts += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
}

/** Runs in the page: the sum, once two frames have painted what came last. */
function shiftSoFar() {
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(window.shifts), 0))));
}

/** axe's findings, a line each. */
async function findings(page, options) {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(AXE);
  const violations = await page.evaluate(async (options) => (await window.axe.run(document, options)).violations, options);
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html}\n${failureSummary}`));
}

if (process.env.UPDATE_SCREENSHOTS) {
  for (const { name, view, colorScheme, viewport } of README) {
    scenario(`the README's ${name} is renewed`, { colorScheme, viewport }, async (scene) => {
      await visit(scene, VIEWS.find((known) => known.name === view));
      await scene.page.screenshot({ path: join(DOCS, `${name}.png`), animations: "disabled" });
    });
  }
}
