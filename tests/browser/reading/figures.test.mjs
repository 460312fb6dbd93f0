// Records and figures: the agent's page, the statistics, the start page.
//
// 1. An agent's page has every field of its record as the chain has it, its children and its compliance.
// 2. Amounts keep every digit, beyond what a double holds.
// 3. The figures and charts of the statistics are the API's, and each chart has its numbers as text.

import assert from "node:assert/strict";

import { api } from "../harness/api.mjs";
import { scenario } from "../harness/scenario.mjs";
import { registry, stack } from "../harness/stack.mjs";
import { settled } from "../harness/views.mjs";

const { agents } = stack;

/** A list of facts on the screen: terms and what they say, without what only the eye gets. */
const facts = (page) =>
  page
    .locator("main dl")
    .evaluateAll((lists) =>
      Object.fromEntries(
        lists.flatMap((list) =>
          [...list.querySelectorAll("dt")].map((term) => [term.textContent, term.nextElementSibling.textContent.trim()]),
        ),
      ),
    );

/** A table of figures, row by row: the label and the number as shown. */
const chart = (page, heading) =>
  page
    .locator("section", { has: page.getByRole("heading", { name: heading, exact: true }) })
    .locator("tbody tr")
    .evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText.trim())));

/** Cents as units, every digit kept. */
function units(cents) {
  const digits = String(cents).padStart(3, "0");
  return `${digits.slice(0, -2).replace(/\B(?=(\d{3})+$)/g, ",")}.${digits.slice(-2)}`;
}

scenario("an agent's page has its whole record as the chain has it", async ({ page, open }) => {
  for (const name of ["cirrus", "kyoto", "alexandria", "quoted", "silent"]) {
    const record = await (await registry()).getAgent(agents[name].id);
    await open(`#/agent/${agents[name].id}`);
    await settled(page);
    await page.getByRole("heading", { level: 1, name: `Agent ${agents[name].id}`, exact: true }).waitFor();
    const text = await page.locator("main").textContent();
    const words = [
      record.creator,
      record.haftungsperson,
      record.agentWallet,
      record.constitutionHash,
      record.capabilityHash,
      record.operationalScope,
    ];
    for (const word of words) assert.ok(text.includes(word), `${name}: ${word}`);
    const shown = await facts(page);
    assert.equal(shown["Generation"], String(record.generation));
    assert.equal(shown["Self-modifying"], record.selfModifying ? "Yes" : "No");
    assert.equal(shown["Parent"].match(/\d+/)?.[0] ?? "0", String(record.parentAgentId));
    const times = await page.locator("main time").evaluateAll((all) => all.map((time) => time.dateTime));
    for (const seconds of [record.registeredAt, record.lastAttestation]) {
      assert.ok(times.includes(new Date(Number(seconds) * 1000).toISOString()), `${name}: ${seconds}`);
    }
  }
});

scenario("an agent's page says whether it is compliant, and names its children", async ({ page, open }) => {
  await open(`#/agent/${agents.atlas.id}`);
  await settled(page);
  assert.match(await page.locator("main").innerText(), /Active\s+Compliant/);
  const children = (await (await registry()).getChildren(agents.atlas.id)).map((id) => `Agent ${id}`);
  assert.deepEqual(await page.getByRole("list", { name: "Children" }).getByRole("link").allInnerTexts(), children);
  await open(`#/agent/${agents.paused.id}`);
  await settled(page);
  assert.match(await page.locator("main").innerText(), /Suspended\s+Not compliant/);
});

scenario("revenue is shown report by report, with every digit", async ({ page, open }) => {
  const history = await (await registry()).getRevenueHistory(agents.atlas.id);
  assert.ok(history.length >= 4);
  await open(`#/agent/${agents.atlas.id}`);
  await settled(page);
  const rows = await page.getByRole("table", { name: "Revenue reports" }).locator("tbody tr").allInnerTexts();
  assert.equal(rows.length, history.length);
  history.forEach(({ amount, currency, category }, index) => {
    for (const word of [units(amount), currency, category]) assert.ok(rows[index].includes(word), `${rows[index]}: ${word}`);
  });
  const sums = new Map();
  for (const { currency, amount } of history) sums.set(currency, (sums.get(currency) ?? 0n) + amount);
  const summary = await page.locator("main").innerText();
  for (const [currency, sum] of sums) {
    assert.ok(summary.includes(`${units(sum)} ${currency}`), `${units(sum)} ${currency}`);
  }

  // 2^53 + 1 cents: a double has 9007199254740992.
  await open(`#/agent/${agents.ledger.id}`);
  await settled(page);
  const report = page.getByRole("table", { name: "Revenue reports" });
  assert.match(await report.innerText(), /90,071,992,547,409\.93/);
});

scenario("the statistics are the API's, in charts that are tables too", async ({ page, open }) => {
  await open("#/statistics");
  await settled(page);
  const stats = (await api("/api/v1/stats/detailed")).document;
  const shown = await facts(page);
  assert.equal(shown["Agents registered"], String(stats.totalAgents));
  assert.equal(shown["Compliant"], String(stats.compliantCount));
  assert.equal(shown["Compliance rate"], `${stats.complianceRate} %`);
  assert.ok(shown["Registry"].includes(stats.registryAddress));

  const counts = (distribution) => Object.entries(distribution).map(([name, count]) => [name, String(count)]);
  assert.deepEqual(await chart(page, "By status"), counts(stats.statusDistribution));
  const generations = counts(stats.generationDistribution).map(([name, count]) => [`Generation ${name}`, count]);
  assert.deepEqual(await chart(page, "By generation"), generations);

  // Text, for JSON.parse would round what the page must not.
  const totals = (await api("/api/v1/revenue/aggregate")).text;
  const byCurrency = [.../"byCurrency":\{([^}]*)\}/.exec(totals)[1].matchAll(/"([^"]+)":(\d+)/g)];
  const sorted = byCurrency.map(([, name, cents]) => [name, BigInt(cents)]).sort(([, a], [, b]) => (a < b ? 1 : -1));
  assert.ok(sorted.length >= 3 && sorted[0][1] > BigInt(Number.MAX_SAFE_INTEGER));
  assert.deepEqual(await chart(page, "Revenue by currency"), sorted.map(([name, cents]) => [name, units(cents)]));
  assert.equal((await chart(page, "Revenue by category")).length, /"byCategory":\{([^}]*)\}/.exec(totals)[1].match(/":/g).length);

  const latest = await page.getByRole("table", { name: "Latest registrations" }).getByRole("link", { name: /^Agent / }).allInnerTexts();
  assert.deepEqual(latest, stats.recentRegistrations.map(({ agentId }) => `Agent ${agentId}`));
});

scenario("the start page has the registry in figures", async ({ page, open }) => {
  await open("#/");
  await settled(page);
  const stats = (await api("/api/v1/stats/detailed")).document;
  const shown = await facts(page);
  assert.equal(shown["Agents registered"], String(stats.totalAgents));
  assert.equal(shown["Compliance rate"], `${stats.complianceRate} %`);
});
