// Without a mouse, and without eyes.
//
// 1. From the address to a verdict by keyboard alone, in the order of the page.
// 2. The skip link is the first stop, and leads past the head.
// 3. After each step to another view its heading has the focus, and the document has its own title;
//    a filter in use keeps the focus.
// 4. Every stop is visible: it has a focus ring.
// 5. The theme can be chosen, stays chosen, and needs no reload.

import assert from "node:assert/strict";

import { api } from "../harness/api.mjs";
import { eventually } from "../harness/eventually.mjs";
import { scenario } from "../harness/scenario.mjs";
import { stack } from "../harness/stack.mjs";
import { settled } from "../harness/views.mjs";

const { agents } = stack;

/** What has the focus: its role by tag, and its name or text. */
const focus = (page) =>
  page.evaluate(() => {
    const element = document.activeElement;
    const name = element.getAttribute("aria-label") ?? element.labels?.[0]?.textContent ?? element.textContent;
    return `${element.tagName.toLowerCase()} ${name.trim()}`;
  });

scenario("from the address to a verdict by keyboard alone", async ({ page, open }) => {
  await open("#/");
  await settled(page);
  const stops = [];
  do {
    await page.keyboard.press("Tab");
    stops.push(await focus(page));
  } while (stops.at(-1) !== "input Wallet or agent id" && stops.length < 20);
  assert.deepEqual(stops, [
    "a Skip to content",
    "a Agent registry",
    "a Agents",
    "a Changes",
    "a Statistics",
    "a Register",
    "a Ask",
    "a Settings",
    "input Wallet or agent id",
  ]);
  await page.keyboard.type(agents.kyoto.wallet);
  await page.keyboard.press("Tab");
  assert.equal(await focus(page), "button Look up");
  await page.keyboard.press("Enter");
  const verdict = page.getByRole("status").filter({ hasText: "Provision" });
  await verdict.waitFor();
  assert.match((await focus(page)).replace(/\s/g, ""), new RegExp(`^h1.*${agents.kyoto.wallet}$`, "i"));
});

scenario("the skip link leads past the head", async ({ page, open }) => {
  await open("#/agents");
  await settled(page);
  await page.keyboard.press("Tab");
  assert.equal(await focus(page), "a Skip to content");
  assert.ok((await page.getByRole("link", { name: "Skip to content" }).boundingBox()).y >= 0, "visible while it has the focus");
  await page.keyboard.press("Enter");
  assert.ok(page.url().endsWith("#/agents"), "the view stays");
  await page.keyboard.press("Tab");
  assert.ok(await page.evaluate(() => document.activeElement.closest("main") !== null), await focus(page));
});

scenario("after each step the new view's heading has the focus, and the document its title", async ({ page, open }) => {
  await open("#/");
  await settled(page);
  const titles = [await page.title()];
  const newest = (await api("/api/v1/stats")).document.totalAgents;
  const steps = [
    [() => page.getByRole("navigation").getByRole("link", { name: "Agents" }).press("Enter"), "h1 Agents"],
    [() => page.getByRole("link", { name: `Agent ${newest}`, exact: true }).press("Enter"), `h1 Agent ${newest}`],
    [() => page.getByRole("link", { name: "Lineage as a tree" }).press("Enter"), `h1 Lineage of agent ${newest}`],
    [() => page.goBack(), `h1 Agent ${newest}`],
    [() => page.getByRole("link", { name: "Settings" }).press("Enter"), "h1 Settings"],
  ];
  for (const [step, heading] of steps) {
    await step();
    await eventually(async () => assert.equal(await focus(page), heading));
    await settled(page);
    assert.equal(await focus(page), heading, "and keeps it once the answer is there");
    titles.push(await page.title());
  }
  assert.equal(new Set(titles).size, titles.length - 1, `each view its own, the agent's twice: ${titles}`);
  assert.ok(titles.slice(1).every((title, index) => title.startsWith(steps[index][1].slice(3))), `${titles}`);
});

scenario("a filter keeps the focus while the list follows it", async ({ page, open }) => {
  await open("#/agents");
  await settled(page);
  const status = page.getByLabel("Status");
  await status.focus();
  for (const chosen of ["Suspended", "Revoked"]) {
    await status.selectOption(chosen);
    await page.waitForURL(new RegExp(`status=${chosen}$`));
    await settled(page);
    assert.equal(await status.evaluate((element) => element === document.activeElement), true, chosen);
  }
  // The same view at another address, without the filter: on to its heading.
  await page.getByRole("navigation").getByRole("link", { name: "Agents" }).press("Enter");
  await page.waitForURL(/#\/agents$/);
  await eventually(async () => assert.equal(await focus(page), "h1 Agents"));
});

scenario("every stop of the tab key can be seen", async ({ page, open }) => {
  for (const hash of ["#/", `#/agent/${agents.atlas.id}`, `#/agent/${agents.atlas.id}/lineage`, "#/agents", "#/register", "#/settings"]) {
    await open(hash);
    await settled(page);
    // From then on the browser shows where the focus is, as for all who use the keyboard.
    await page.keyboard.press("Tab");
    const { stops, unseen } = await page.evaluate(lookAtStops);
    assert.ok(stops > 10, `${hash}: ${stops} stops`);
    assert.deepEqual(unseen, [], hash);
  }
});

/** Runs in the page: gives each stop of the tab key the focus, and names those that show nothing of it. */
function lookAtStops() {
  const stops = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")].filter(
    (element) => element.tabIndex >= 0 && !element.disabled && element.checkVisibility({ visibilityProperty: true }),
  );
  const isSeen = (element) => {
    element.focus();
    if (element !== document.activeElement || !element.matches(":focus-visible")) return false;
    const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(element);
    const { width, height } = element.getBoundingClientRect();
    const hasRing = (outlineStyle !== "none" && parseFloat(outlineWidth) >= 1) || boxShadow !== "none";
    return hasRing && width > 0 && height > 0;
  };
  return { stops: stops.length, unseen: stops.filter((stop) => !isSeen(stop)).map((stop) => stop.outerHTML.slice(0, 120)) };
}

scenario("the theme can be chosen, and stays chosen", { colorScheme: "light" }, async ({ page, open }) => {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await open("#/settings");
  const light = await background();
  await page.getByLabel("Theme").selectOption("Dark");
  const dark = await background();
  assert.notEqual(dark, light);
  await page.reload();
  await settled(page);
  assert.equal(await background(), dark);
  assert.equal(await page.getByLabel("Theme").inputValue(), "dark");
  await page.getByLabel("Theme").selectOption("System");
  assert.equal(await background(), light);
  await page.emulateMedia({ colorScheme: "dark" });
  assert.equal(await background(), dark);
});
