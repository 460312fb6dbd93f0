// Accessibility: axe-core finds nothing in any view, in either theme, on a desktop and on a phone.
//
// All of axe's rules run, best practices included. What a machine cannot judge is in `keyboard.test.mjs` and in the roles and
// names by which all tests find things.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { scenario } from "../harness/scenario.mjs";
import { visit, VIEWS } from "../harness/views.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SIZES = [
  { width: 1280, height: 800 },
  { width: 360, height: 740 },
];

/** Runs in the page: waits until colours on their way from one theme to the other have arrived. */
function stillness() {
  return Promise.allSettled(document.getAnimations().map((animation) => animation.finished));
}

/** axe's findings, a line each. */
async function findings(page) {
  await page.evaluate(AXE);
  const violations = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations);
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html}\n${failureSummary}`));
}

for (const view of VIEWS) {
  scenario(`axe finds nothing in ${view.name}`, { faults: view.faults }, async (scene) => {
    await visit(scene, view);
    const found = [];
    for (const viewport of SIZES) {
      await scene.page.setViewportSize(viewport);
      for (const colorScheme of ["light", "dark"]) {
        await scene.page.emulateMedia({ colorScheme });
        await scene.page.evaluate(stillness);
        const lines = await findings(scene.page);
        found.push(...lines.map((line) => `${viewport.width} px, ${colorScheme}: ${line}`));
      }
    }
    assert.deepEqual(found, []);
  });
}
