// The lineage as a tree.
//
// 1. Its agents, their levels and their order are the API's; an agent leads to its page.
// 2. Children that were cut are marked, with how many.
// 3. It opens and closes by mouse and by keyboard, and the keyboard walks it as the ARIA tree pattern has it.
// 4. It zooms by buttons, keys and pinch, moves by dragging, and keeps what has the focus in sight.

import assert from "node:assert/strict";

import { api } from "../harness/api.mjs";
import { eventually } from "../harness/eventually.mjs";
import { scenario } from "../harness/scenario.mjs";
import { stack } from "../harness/stack.mjs";
import { settled } from "../harness/views.mjs";

const { atlas, boreas, cirrus, dune, ember, harbour } = stack.agents;

async function openTree({ page, open }, agent) {
  await open(`#/agent/${agent.id}/lineage`);
  await settled(page);
  const tree = page.getByRole("tree");
  await tree.waitFor();
  return tree;
}

/** Visible items in reading order: agent, level, whether it is open. */
function shown(tree) {
  return tree.getByRole("treeitem").evaluateAll((items) =>
    items.map((item) => ({
      id: Number(/Agent (\d+)/.exec(item.textContent)[1]),
      level: Number(item.getAttribute("aria-level")),
      open: item.getAttribute("aria-expanded"),
    })),
  );
}

const ids = async (tree) => (await shown(tree)).map(({ id }) => id);

/** The item that has the focus. */
const focused = (tree) =>
  tree.evaluate(() => Number(/Agent (\d+)/.exec(document.activeElement?.closest("[role=treeitem]")?.textContent ?? "")?.[1]));

const itemOf = (tree, agent) =>
  tree.getByRole("treeitem").filter({ has: tree.page().getByText(`Agent ${agent.id}`, { exact: true }) });

scenario("the tree is the API's: agents, levels, order", async (scene) => {
  const tree = await openTree(scene, atlas);
  const expected = [];
  const walk = ({ agentId, children }, level) => {
    expected.push({ id: agentId, level, open: children.length > 0 ? "true" : null });
    for (const child of children) walk(child, level + 1);
  };
  walk((await api(`/api/v1/agent/${atlas.id}/lineage`)).document, 1);
  assert.deepEqual(await shown(tree), expected);
  assert.deepEqual(
    expected.slice(0, 5).map(({ id, level }) => [id, level]),
    [[atlas.id, 1], [boreas.id, 2], [cirrus.id, 3], [dune.id, 4], [ember.id, 2]],
    "the showcase's story",
  );
  await tree.getByRole("link", { name: `Agent ${cirrus.id}`, exact: true }).click();
  await scene.page.getByRole("heading", { level: 1, name: `Agent ${cirrus.id}`, exact: true }).waitFor();
});

scenario("children that were cut are marked, with how many", async (scene) => {
  const tree = await openTree(scene, harbour);
  const items = await shown(tree);
  assert.equal(items.filter(({ level }) => level === 2).length, 50);
  const note = itemOf(tree, harbour).getByText("Showing 50 of 56 children");
  await note.waitFor();
  assert.equal(await tree.getByText(/^Showing/).count(), 1, "only where children were cut");
});

scenario("a click closes and opens an agent's children", async (scene) => {
  const tree = await openTree(scene, atlas);
  const all = await ids(tree);
  const boreasItem = itemOf(tree, boreas);
  // On the card, beside the link.
  const { width, height } = await boreasItem.boundingBox();
  const position = { x: width / 2, y: height - 4 };
  await boreasItem.click({ position });
  assert.deepEqual(await ids(tree), all.filter((id) => id !== cirrus.id && id !== dune.id));
  assert.equal(await boreasItem.getAttribute("aria-expanded"), "false");
  await boreasItem.click({ position });
  assert.deepEqual(await ids(tree), all);
});

scenario("the keyboard walks, closes and opens the tree", async (scene) => {
  const tree = await openTree(scene, atlas);
  const all = await ids(tree);
  await itemOf(tree, atlas).focus();
  const press = async (key) => {
    await scene.page.keyboard.press(key);
    return focused(tree);
  };
  assert.equal(await press("ArrowDown"), boreas.id);
  assert.equal(await press("ArrowDown"), cirrus.id);
  assert.equal(await press("ArrowUp"), boreas.id);
  assert.equal(await press("ArrowLeft"), boreas.id, "closes, and stays");
  assert.deepEqual(await ids(tree), all.filter((id) => id !== cirrus.id && id !== dune.id));
  assert.equal(await press("ArrowLeft"), atlas.id, "closed already: to the parent");
  assert.equal(await press("ArrowRight"), boreas.id, "open already: to the first child");
  assert.equal(await press("ArrowRight"), boreas.id, "opens, and stays");
  assert.deepEqual(await ids(tree), all);
  assert.equal(await press("End"), all.at(-1));
  assert.equal(await press("Home"), atlas.id);

  const stops = await tree.evaluate((element) => element.querySelectorAll("[tabindex='0']").length);
  assert.equal(stops, 1, "one stop for the tab key");
  await press("ArrowDown");
  await scene.page.keyboard.press("Enter");
  await scene.page.getByRole("heading", { level: 1, name: `Agent ${boreas.id}`, exact: true }).waitFor();
});

scenario("it zooms by button, key and pinch, and moves by dragging", async (scene) => {
  const { page } = scene;
  const tree = await openTree(scene, atlas);
  const root = itemOf(tree, atlas);
  const width = async () => (await root.boundingBox()).width;
  const grows = async (act, compare) => {
    const before = await width();
    await act();
    await eventually(async () => assert.ok(compare(await width(), before), `${before} to ${await width()}`));
  };
  await grows(() => page.getByRole("button", { name: "Zoom out" }).click(), (now, before) => now < before);
  await grows(() => page.getByRole("button", { name: "Zoom in" }).click(), (now, before) => now > before);
  await root.focus();
  await grows(() => page.keyboard.press("-"), (now, before) => now < before);
  await grows(() => page.keyboard.press("+"), (now, before) => now > before);

  // Between the cards: a drag that begins on a card is one, too, but a click there closes it.
  const stage = await page.locator(".tree-viewport").boundingBox();
  const [x, y] = [stage.x + stage.width - 30, stage.y + stage.height - 30];
  await page.mouse.move(x, y);
  await page.keyboard.down("Control");
  await grows(() => page.mouse.wheel(0, 120), (now, before) => now < before);
  await page.keyboard.up("Control");

  const before = await root.boundingBox();
  await page.mouse.down();
  await page.mouse.move(x - 40, y - 25, { steps: 4 });
  await page.mouse.up();
  const after = await root.boundingBox();
  assert.deepEqual([Math.round(after.x - before.x), Math.round(after.y - before.y)], [-40, -25]);
});

/** The item that has the focus can be seen: from top to bottom, and its beginning. */
async function assertFocusInSight(page) {
  const [item, stage] = await Promise.all([
    page.locator("[role=treeitem]:focus").boundingBox(),
    page.locator(".tree-viewport").boundingBox(),
  ]);
  assert.ok(item.y >= stage.y && item.y + item.height <= stage.y + stage.height, "from top to bottom");
  assert.ok(item.x < stage.x + stage.width && item.x + item.width > stage.x, "and its beginning");
}

const phone = { viewport: { width: 360, height: 740 } };

scenario("what has the focus is in sight, in a tree larger than its window", phone, async (scene) => {
  const tree = await openTree(scene, harbour);
  await itemOf(tree, harbour).focus();
  await scene.page.keyboard.press("End");
  await assertFocusInSight(scene.page);
});

scenario("what got the focus before the tree was on the screen is in sight, too", phone, async (scene) => {
  const { page, open } = scene;
  await open("#/settings");
  await page.evaluate(pressEndAtOnce);
  const tree = await openTree(scene, harbour);
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  assert.equal(await focused(tree), (await ids(tree)).at(-1));
  await assertFocusInSight(page);
});

/** Runs in the page: the End key, as soon as there is a tree, and before anything of it is painted. */
function pressEndAtOnce() {
  new MutationObserver((_changes, observer) => {
    const first = document.querySelector("[role=treeitem]");
    if (!first) return;
    observer.disconnect();
    first.focus();
    first.dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true, cancelable: true }));
  }).observe(document, { childList: true, subtree: true });
}
