// The main journeys in the other engine, each a step of one visit: a pasted wallet to its verdict, whose time goes on in a page that
// was translated; an agent, its lineage, the list, a liable person, figures, live changes; and an answer verified by the core's wasm.

import assert from "node:assert/strict";

import { test } from "../harness/declared.mjs";
import { eventually } from "../harness/eventually.mjs";
import { inFirefox } from "../harness/firefox.mjs";
import { Front } from "../harness/front.mjs";
import { registry, stack } from "../harness/stack.mjs";

const { atlas, ledger } = stack.agents;

/** Runs in the page: what is on the screen, once nothing in it is loading. */
function looked() {
  const all = (selector) => [...document.querySelectorAll(selector)];
  return {
    isSettled: all("main h1").length === 1 && all("main[aria-busy=true], main [aria-busy=true]").length === 0,
    heading: all("main h1").map((heading) => heading.textContent.replace(/\s/g, ""))[0],
    text: document.querySelector("main").textContent,
    kinds: all("[data-verdict], [data-feed], [data-verify]").flatMap(({ dataset }) => Object.values(dataset)),
    rows: all("main tbody tr").length,
    items: all("[role=treeitem]").length,
    width: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
}

/** Runs in the page: puts text into a field as a paste does. */
function pasted(label, text) {
  const labelled = (element) => (element.ariaLabel ?? element.labels?.[0]?.textContent ?? "").trim() === label;
  const input = [...document.querySelectorAll("input")].find(labelled);
  input.focus();
  input.select();
  document.execCommand("insertText", false, text);
}

/** Runs in the page. */
function clicked(button) {
  [...document.querySelectorAll("button")].find(({ textContent }) => textContent.trim().startsWith(button)).click();
}

/** Runs in the page: puts other nodes in the place of texts, as a browser does that translates. */
function translated() {
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (const text of texts) {
    const font = document.createElement("font");
    text.replaceWith(font);
    font.append(text.textContent);
  }
}

test("in Firefox the main journeys lead where they do in Chromium", { timeout: 600_000 }, async () => {
  const front = await Front.start(stack.worker);
  try {
    await inFirefox(`${front.url}/#/`, async (evaluate) => {
      const run = (act, ...words) => evaluate(`(${act})(...${JSON.stringify(words)}) ?? null`);
      const shows = (what) =>
        eventually(async () => {
          const screen = await run(looked);
          assert.ok(screen.isSettled);
          what(screen);
          assert.equal(screen.width, 0, `${screen.heading} scrolls sideways`);
        });
      const open = (hash) => run((hash) => void (location.hash = hash), hash);

      await shows(({ heading }) => assert.ok(heading));
      await run(pasted, "Wallet or agent id", `\u200b0X${ledger.wallet.slice(2)}\u200e `);
      await run(clicked, "Look up");
      await shows(({ heading, kinds }) => {
        assert.match(heading, new RegExp(`${ledger.wallet}$`, "i"));
        assert.ok(kinds.includes("provision"), kinds.join());
      });
      await run(translated);
      const left = () => evaluate(`document.querySelector(".left").textContent`);
      const before = await left();
      await eventually(async () => assert.notEqual(await left(), before));

      const record = await (await registry()).getAgent(atlas.id);
      const views = {
        [`#/agent/${atlas.id}`]: ({ heading, text }) => {
          assert.equal(heading, `Agent${atlas.id}`);
          for (const word of [record.haftungsperson, record.constitutionHash, record.operationalScope]) assert.ok(text.includes(word));
        },
        [`#/agent/${atlas.id}/lineage`]: ({ heading, items }) => assert.ok(heading.startsWith("Lineage") && items >= 5, `${items}`),
        "#/agents": ({ heading, rows }) => assert.ok(heading === "Agents" && rows >= 20, `${rows}`),
        [`#/liable/${atlas.person}`]: ({ heading, text }) =>
          assert.ok(heading.startsWith("Liableperson") && text.includes(`Agent ${atlas.id}`)),
        "#/statistics": ({ heading, rows }) => assert.ok(heading === "Statistics" && rows > 10, heading),
        "#/changes": ({ kinds }) => assert.ok(kinds.includes("live"), kinds.join()),
        "#/settings": ({ heading }) => assert.equal(heading, "Settings"),
      };
      for (const [hash, what] of Object.entries(views)) {
        await open(hash);
        await shows(what);
      }
      await run(pasted, "RPC URL", stack.rpc);
      await run(clicked, "Save settings");
      await shows(({ text }) => assert.match(text, /Saved/));
      await open(`#/agent/${atlas.id}`);
      await shows(views[`#/agent/${atlas.id}`]);
      await run(clicked, "Verify against the chain");
      await shows(({ kinds, text }) => assert.ok(kinds.includes("agreement"), text));
    });
  } finally {
    await front.close();
  }
});
