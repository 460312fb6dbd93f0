// What a person is liable for.
//
// 1. The counts and the agents are the chain's; a person with many agents has pages.
// 2. From an agent and from a verdict one link leads there; a person is an address like any other.
// 3. A wallet that no agent names, a wrong one, and a service without an index are explained.

import assert from "node:assert/strict";

import { privateKeyToAccount } from "viem/accounts";

import { signDomain } from "../../../browser/pkg/liability-node.js";

import { api } from "../harness/api.mjs";
import { scenario } from "../harness/scenario.mjs";
import { records, stack } from "../harness/stack.mjs";
import { NO_INDEX, UNREGISTERED, settled } from "../harness/views.mjs";

const { atlas, harbour, kyoto } = stack.agents;
const STATUSES = ["Active", "Suspended", "Revoked", "Terminated"];
/** Agents on one page. */
const PAGE = 20;

/** The ids and statuses of the table of agents. */
async function rows(page) {
  await settled(page);
  return page
    .getByRole("table", { name: "Agents", exact: true })
    .locator("tbody tr")
    .evaluateAll((all) => all.map((row) => [...row.cells].slice(0, 2).map((cell) => cell.innerText.trim())));
}

const expectedRows = (records) => records.map(({ agentId, status }) => [`Agent ${agentId}`, STATUSES[Number(status)]]);

scenario("the counts and the agents are the chain's, page by page", async ({ page, open }) => {
  const { person } = harbour;
  const theirs = (await records()).filter(({ haftungsperson }) => haftungsperson === person);
  assert.ok(theirs.length > PAGE, `${theirs.length} agents, more than one page`);
  await open(`#/liable/${person}`);
  assert.deepEqual(await rows(page), expectedRows(theirs.slice(0, PAGE)));
  const agents = page.locator(".figures > div", { hasText: "Agents" }).locator("dd");
  assert.equal(await agents.innerText(), String(theirs.length));
  const counts = await page
    .locator("section", { has: page.getByRole("heading", { name: "By status" }) })
    .locator("tbody tr")
    .evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.innerText.trim())));
  const inStatus = (status) => theirs.filter((record) => STATUSES[Number(record.status)] === status).length;
  assert.deepEqual(counts, STATUSES.map((status) => [status, String(inStatus(status))]));

  const first = page.getByRole("link", { name: "First page" });
  const next = page.getByRole("link", { name: "Next page" });
  assert.equal(await first.getAttribute("aria-disabled"), "true");
  const shown = await rows(page);
  while ((await next.getAttribute("aria-disabled")) === null) {
    await next.click();
    await page.waitForURL((url) => url.hash.endsWith(`cursor=${/\d+/.exec(shown.at(-1)[0])[0]}`));
    shown.push(...(await rows(page)));
  }
  assert.deepEqual(shown, expectedRows(theirs), "every agent once, in the order of ids");
  await first.click();
  await page.waitForURL(/0x[0-9a-fA-F]{40}$/);
  assert.deepEqual(await rows(page), expectedRows(theirs.slice(0, PAGE)));
});

scenario("the attestations that lapse next are the API's, the soonest first", async ({ page, open }) => {
  const { nextLapses } = (await api(`/api/v1/liable/${kyoto.person}`)).document;
  assert.ok(nextLapses.length > 0);
  await open(`#/liable/${kyoto.person}`);
  await settled(page);
  const table = page.getByRole("table", { name: "Attestations that lapse next" });
  const times = await table.locator("time").evaluateAll((all) => all.map((time) => time.dateTime));
  assert.deepEqual(times, nextLapses.map(({ compliantUntil }) => compliantUntil));
  assert.deepEqual(times, times.toSorted());
});

scenario("from an agent and from a verdict one link leads to the person", async ({ page, open }) => {
  for (const hash of [`#/agent/${atlas.id}`, `#/wallet/${atlas.wallet}`]) {
    await open(hash);
    await settled(page);
    await page.locator(`a[href="#/liable/${atlas.person}"]`, { hasText: atlas.person }).click();
    await page.waitForURL(new RegExp(`#/liable/${atlas.person}$`));
    await settled(page);
    assert.ok((await rows(page)).some(([agent]) => agent === `Agent ${atlas.id}`), hash);
  }
});

scenario("a wallet that no agent names is liable for nothing, and no error", async ({ page, open }) => {
  await open(`#/wallet/${UNREGISTERED}`);
  await settled(page);
  await page.getByRole("link", { name: "What this wallet is liable for" }).click();
  await page.getByText("No agent names this wallet").waitFor();
  await page.getByRole("link", { name: "Verdict on this wallet" }).click();
  await page.locator("[data-verdict=deny]").waitFor();
});

scenario("a wrong wallet, a wrong cursor and a service without an index are explained", { faults: true }, async ({ page, front, open }) => {
  for (const path of ["0x1234", `${atlas.person}?cursor=first`]) {
    await open(`#/liable/${path}`);
    await settled(page);
    const { error } = (await api(`/api/v1/liable/${path}`)).document;
    assert.ok((await page.getByRole("alert").innerText()).includes(error), error);
  }
  front.on(/\/liable\//, NO_INDEX);
  await open(`#/liable/${atlas.person}`);
  await settled(page);
  assert.match(await page.getByRole("alert").innerText(), /Not available here[^]*keeps none[^]*INDEX_REQUIRED/);
  assert.equal(await page.getByRole("button", { name: "Try again" }).count(), 0, "asking again would not help");
});

scenario("a domain stands behind a wallet where both say so, and what it claims is called its claim", async ({ page, open, guard }) => {
  const person = privateKeyToAccount(`0x${"07".repeat(32)}`);
  const place = { chainId: 31_337, registry: stack.registry, days: 1 };
  const entry = await signDomain(person.address, "acme.example", place, (data) => person.signTypedData(data));
  const file = { liable: [{ ...entry, legalName: "Acme <b>GmbH</b>" }], notOurs: ["7"] };
  let answer = { json: file, headers: { "access-control-allow-origin": "*" } };
  await page.route("https://*.example/.well-known/kya-liable.json", (route) => route.fulfill(answer));
  await open(`#/liable/${person.address}`);
  const asked = async (domain) => {
    await page.getByLabel("Domain").fill(domain);
    await page.getByRole("button", { name: "Ask the domain" }).click();
    const outcome = page.locator("[data-domain]");
    await outcome.waitFor();
    return [await outcome.getAttribute("data-domain"), await outcome.innerText()];
  };
  const [bound, text] = await asked("acme.example");
  assert.equal(bound, "bound");
  for (const part of ["the wallet has signed for acme.example", "as the domain claims", "Acme <b>GmbH</b>", "Agent 7"])
    assert.ok(text.includes(part), text);
  assert.ok(!/verified/i.test(text), "no mark of verification");
  assert.equal((await asked("other.example"))[0], "unproved");
  answer = { ...answer, json: { liable: [] } };
  assert.equal((await asked("acme.example"))[0], "absent");
  answer = { ...answer, json: { liable: [], notours: [] } };
  const [fault, reason] = await asked("acme.example");
  assert.deepEqual([fault, /notours/.test(reason)], ["error", true]);
  await page.getByLabel("Domain").fill("acme.example:8443");
  await page.getByRole("button", { name: "Ask the domain" }).click();
  await page.getByText("must be a domain name").waitFor();
  // The reader's domains, and no other site.
  const asks = (problem) => /^third party: https:\/\/(acme|other)\.example\/\.well-known\/kya-liable\.json$/.test(problem);
  assert.ok(guard.problems.every(asks), guard.problems.join());
  guard.problems.length = 0;
});
