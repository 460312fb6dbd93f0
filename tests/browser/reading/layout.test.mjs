// The layout, and pictures of it.
//
// 1. Nothing jumps while a view loads: the cumulative layout shift stays below 0.1, on a phone and on a desktop.
// 2. No view scrolls sideways at 360, 768 or 1280 px.
// 3. Every run leaves pictures of every view at these widths, in both themes, in `target/screenshots`; with
//    `UPDATE_SCREENSHOTS=1` the README's are renewed.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { DOCS, PICTURES } from "../harness/pictures.mjs";
import { scenario } from "../harness/scenario.mjs";
import { settled, visit, VIEWS, widths } from "../harness/views.mjs";

const WIDTHS = [360, 768, 1280];
/** What users hardly notice, by the Web Vitals. */
const MOST_SHIFT = 0.1;

/** The README's pictures: a verdict and a lineage. */
const README = [
  { name: "explorer-verdict", view: "wallet-provision", colorScheme: "light", viewport: { width: 1280, height: 690 } },
  { name: "explorer-lineage", view: "lineage", colorScheme: "dark", viewport: { width: 1280, height: 690 } },
];

for (const view of VIEWS) {
  scenario(`${view.name} fits every width, and is pictured`, { faults: view.faults }, async (scene) => {
    const { page } = scene;
    mkdirSync(PICTURES, { recursive: true });
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 800 });
      // Anew each time: what is laid out once, such as a tree, is laid out for the window it finds.
      await page.goto("about:blank");
      await visit(scene, view);
      const [whole, shown] = await widths(page);
      assert.ok(whole <= shown, `${whole} px in a window of ${shown}`);
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme });
        const path = join(PICTURES, `${view.name}-${width}-${colorScheme}.png`);
        await page.screenshot({ path, fullPage: true, animations: "disabled" });
      }
    }
  });
}

for (const width of [360, 1280]) {
  const viewport = { width, height: 800 };
  scenario(`nothing jumps while a view loads, at ${width} px`, { viewport, faults: true }, async ({ page, front, open }) => {
    for (const view of VIEWS.filter(({ before, after }) => !before && !after)) {
      // The answers come when the page has been painted without them, as over a slow network.
      let release;
      front.on(/^\/api\//, { hold: new Promise((done) => (release = done)) });
      await page.goto("about:blank");
      await open(view.hash);
      await page.locator("main h1").waitFor();
      await page.evaluate(observeShifts);
      await page.evaluate(shiftSoFar);
      release();
      await settled(page);
      const shift = await page.evaluate(shiftSoFar);
      assert.ok(shift < MOST_SHIFT, `${view.name}: ${shift}`);
    }
  });
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

if (process.env.UPDATE_SCREENSHOTS) {
  for (const { name, view, colorScheme, viewport } of README) {
    scenario(`the README's ${name} is renewed`, { colorScheme, viewport }, async (scene) => {
      await visit(scene, VIEWS.find((known) => known.name === view));
      await scene.page.screenshot({ path: join(DOCS, `${name}.png`), animations: "disabled" });
    });
  }
}
