// Lists of agents.
//
// 1. The newest come first, with wallet and scope, page after page; one question a page, however many there are.
// 2. Words in the scope, the person, the creator, status and compliance choose agents, together too; they can be sorted.
// 3. All of it stands in the address: Back goes back, a reload and a copied address show the same.
// 4. In the order of ids the pages are the chain's, numbered, and their links stop at the ends.
// 5. From an agent, a person and a chart one link leads to the agents that share it.
// 6. What there is not, a page beyond the end, a text that is no wallet, and a service without an index are explained.

import assert from "node:assert/strict";

import { api } from "../harness/api.mjs";
import { scenario } from "../harness/scenario.mjs";
import { records, stack } from "../harness/stack.mjs";
import { NO_INDEX, NO_INDEX_FOR_LISTS, settled, widths } from "../harness/views.mjs";

const { agents } = stack;
const STATUSES = ["Active", "Suspended", "Revoked", "Terminated"];

/** The rows on the screen, cell by cell, without what only the eye gets. */
async function cells(page) {
  await settled(page);
  return page
    .getByRole("table", { name: "Agents", exact: true })
    .locator("tbody tr")
    .evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent.trim())));
}

/** The ids on the screen. */
const ids = async (page) => (await cells(page)).map(([agent]) => Number(agent.replace("Agent ", "")));

/** The ids and statuses on the screen; of none, nothing. */
async function rows(page) {
  return (await cells(page)).map((row) => row.slice(0, 2));
}

/** What the API answers, in the same shape. */
async function served(query) {
  const { data, ...rest } = (await api(`/api/v1/agents${query}`)).document;
  return { ...rest, rows: data.map(({ agentId, status }) => [`Agent ${agentId}`, status]) };
}

/** Every agent as the chain has it, the newest first. None registers while these tests run. */
const all = (await records()).reverse();

const next = (page) => page.getByRole("link", { name: "Next page" });
const first = (page) => page.getByRole("link", { name: "First page" });
const previous = (page) => page.getByRole("link", { name: "Previous page" });
const find = (page) => page.getByRole("button", { name: "Search", exact: true }).click();
const url = (page, end) => page.waitForURL((url) => url.hash === end);

/** Every id of a list, page after page. */
async function allIds(page) {
  const shown = await ids(page);
  while ((await next(page).count()) > 0 && (await next(page).getAttribute("aria-disabled")) === null) {
    const [before] = shown.slice(-1);
    await next(page).click();
    await page.waitForURL((url) => url.hash.includes(`cursor=${before}`));
    shown.push(...(await ids(page)));
  }
  return shown;
}

scenario("the newest agents come first, with wallet and scope, and one question is one page", async ({ page, front, open }) => {
  await open("#/agents");
  const shown = await cells(page);
  const expected = all.slice(0, 20).map(({ agentId, status, agentWallet }) => [`Agent ${agentId}`, STATUSES[Number(status)], agentWallet]);
  assert.deepEqual(shown.map(([agent, status, , , wallet]) => [agent, status, wallet]), expected);
  for (const [index, { operationalScope }] of all.slice(0, 20).entries()) {
    const scope = shown[index][5];
    assert.ok(operationalScope === "" ? scope === "Nothing stated" : scope && operationalScope.startsWith(scope), scope);
  }
  assert.match(await page.locator("main").innerText(), new RegExp(`${all.length} agents`));
  assert.deepEqual(front.apiRequests, ["/api/v1/agents?sort=-id"]);
  assert.equal(await first(page).getAttribute("aria-disabled"), "true");
  assert.deepEqual(await allIds(page), all.map(({ agentId }) => Number(agentId)), "every agent once");
  assert.ok(front.apiRequests.length <= Math.ceil(all.length / 20));
  await first(page).click();
  await url(page, "#/agents");
  assert.deepEqual(await cells(page), shown);
});

scenario("words in the scope find agents, and the address has them", async ({ page, open }) => {
  await open("#/agents");
  await settled(page);
  const words = page.getByLabel("Words in the scope");
  await words.fill("berth 1");
  await words.press("Enter");
  await url(page, "#/agents?q=berth+1");
  const berths = all.filter(({ operationalScope }) => /^Berth 1/.test(operationalScope));
  assert.ok(berths.length > 1);
  assert.deepEqual(await allIds(page), berths.map(({ agentId }) => Number(agentId)));
  await words.fill("no such words anywhere");
  await find(page);
  await page.getByText("No agent is like this.").waitFor();
  await page.getByRole("link", { name: "Show all agents" }).click();
  await url(page, "#/agents");
  assert.equal(await words.inputValue(), "", "the form follows the address");
  assert.equal((await ids(page)).length, 20);
});

scenario("person, creator, status and compliance choose together, and the order is the visitor's", async ({ page, open }) => {
  const [{ haftungsperson, creator }] = all.filter(({ agentId }) => Number(agentId) === agents.atlas.id);
  await open("#/agents");
  await settled(page);
  await page.getByLabel("Liable person").fill(haftungsperson);
  await page.getByLabel("Creator").fill(creator);
  await find(page);
  await url(page, `#/agents?haftungsperson=${haftungsperson}&creator=${creator}`);
  const theirs = all.filter((record) => record.haftungsperson === haftungsperson && record.creator === creator);
  assert.deepEqual(await allIds(page), theirs.map(({ agentId }) => Number(agentId)));

  await page.getByLabel("Compliance").selectOption("Compliant");
  await page.waitForURL(/compliant=true/);
  const compliant = await served(`?haftungsperson=${haftungsperson}&creator=${creator}&compliant=true&sort=-id`);
  assert.deepEqual(await rows(page), compliant.rows);
  await page.getByLabel("Compliance").selectOption("All");
  await page.getByLabel("Status").selectOption("Active");
  await page.waitForURL(/status=Active/);
  const active = theirs.filter(({ status }) => Number(status) === 0).map(({ agentId }) => Number(agentId));
  assert.deepEqual(await allIds(page), active);
});

scenario("the order by attestation is the chain's, either way", async ({ page, open }) => {
  await open("#/agents");
  await settled(page);
  const times = async () => {
    await settled(page);
    return page.locator("main tbody time").evaluateAll((found) => found.map((time) => time.dateTime));
  };
  const expected = all.map(({ lastAttestation }) => new Date(Number(lastAttestation) * 1_000).toISOString()).sort();
  await page.getByLabel("Order").selectOption("Longest unattested first");
  await url(page, "#/agents?sort=attestation");
  assert.deepEqual(await times(), expected.slice(0, 20));
  await page.getByLabel("Order").selectOption("Last attested first");
  await url(page, "#/agents?sort=-attestation");
  assert.deepEqual(await times(), expected.toReversed().slice(0, 20));
});

scenario("Back and Forward go from list to list, and a reload shows the same", async ({ page, open }) => {
  await open("#/agents");
  const unfiltered = await rows(page);
  await page.getByLabel("Status").selectOption("Active");
  await url(page, "#/agents?status=Active");
  const active = await rows(page);
  await next(page).click();
  await page.waitForURL(/cursor=\d+$/);
  const second = await rows(page);
  assert.notDeepEqual(second, active);
  await page.getByLabel("Words in the scope").fill("berth");
  await find(page);
  await url(page, "#/agents?q=berth&status=Active");
  const berths = await rows(page);

  await page.goBack();
  assert.deepEqual(await rows(page), second);
  assert.equal(await page.getByLabel("Words in the scope").inputValue(), "");
  await page.goBack();
  assert.deepEqual(await rows(page), active);
  assert.equal(await page.getByLabel("Status").inputValue(), "Active");
  await page.goBack();
  assert.deepEqual(await rows(page), unfiltered);
  assert.equal(await page.getByLabel("Status").inputValue(), "");
  for (let step = 0; step < 3; step += 1) await page.goForward();
  assert.deepEqual(await rows(page), berths);
  assert.equal(await page.getByLabel("Words in the scope").inputValue(), "berth");

  await page.reload();
  assert.deepEqual(await rows(page), berths);
  const copy = await page.context().newPage();
  await copy.goto(page.url());
  assert.deepEqual(await rows(copy), berths);
});

scenario("in the order of ids the pages are the chain's, from the first to the last and back", async ({ page, open }) => {
  await open("#/agents");
  await settled(page);
  await page.getByLabel("Order").selectOption("Oldest first");
  await url(page, "#/agents?sort=id");
  const one = await served("");
  assert.ok(one.totalPages >= 3);
  assert.deepEqual(await rows(page), one.rows);
  assert.equal(await previous(page).getAttribute("aria-disabled"), "true");
  for (let number = 2; number <= one.totalPages; number += 1) {
    await next(page).click();
    await page.waitForURL(new RegExp(`page=${number}$`));
    assert.deepEqual(await rows(page), (await served(`?page=${number}`)).rows, `page ${number}`);
  }
  assert.equal(await next(page).getAttribute("aria-disabled"), "true");
  await previous(page).click();
  await page.waitForURL(new RegExp(`page=${one.totalPages - 1}$`));
  assert.deepEqual(await rows(page), (await served(`?page=${one.totalPages - 1}`)).rows);
  for (const status of STATUSES) {
    await page.getByLabel("Status").selectOption(status);
    await url(page, `#/agents?status=${status}&sort=id`);
    const answer = await served(`?status=${status}`);
    assert.ok(answer.total > 0);
    assert.deepEqual(await rows(page), answer.rows);
    assert.match(await page.locator("main").innerText(), new RegExp(`${answer.total} agents?, ${status}`));
  }
});

scenario("one link leads from an agent's creator, a person, a parent and a chart to the agents that share it", async ({ page, open }) => {
  const idsOf = (test) => all.filter(test).map(({ agentId }) => Number(agentId));
  const { creator } = all.find(({ agentId }) => Number(agentId) === agents.atlas.id);
  await open(`#/agent/${agents.atlas.id}`);
  await settled(page);
  await page.locator(`a[href="#/agents?creator=${creator}"]`).click();
  assert.deepEqual(await allIds(page), idsOf((record) => record.creator === creator));

  await open(`#/liable/${agents.atlas.person}`);
  await settled(page);
  await page.getByRole("link", { name: "Search, filter and sort them" }).click();
  await page.waitForURL(/haftungsperson=/);
  assert.deepEqual(await allIds(page), idsOf(({ haftungsperson }) => haftungsperson === agents.atlas.person));

  await open(`#/agent/${agents.harbour.id}`);
  await settled(page);
  await page.getByRole("link", { name: /^and \d+ more$/ }).click();
  await page.waitForURL(/parent=/);
  assert.match(await page.locator("main").innerText(), new RegExp(`Children of Agent ${agents.harbour.id} only\\.`));
  assert.deepEqual(await allIds(page), idsOf(({ parentAgentId }) => Number(parentAgentId) === agents.harbour.id));

  await open("#/statistics");
  await settled(page);
  await page.getByRole("link", { name: "Generation 1" }).click();
  await page.waitForURL(/generation=1$/);
  assert.deepEqual(await allIds(page), idsOf(({ generation }) => Number(generation) === 1));
});

scenario("a scope of any text stays in its cell, and is text", { viewport: { width: 360, height: 740 } }, async ({ page, front, open }) => {
  for (const scope of ["<img src=x onerror=alert(1)><b>bold", "safe \u202Egnp.exe\u2066", "A".repeat(256), ""]) {
    front.on(/\/agents\?/, { rewrite: (body) => body.replace(/"operationalScope":"(?:[^"\\]|\\.)*"/, () => `"operationalScope":${JSON.stringify(scope)}`) });
    await open("#/");
    await open("#/agents");
    const [row] = await cells(page);
    assert.equal(row[5], scope === "" ? "Nothing stated" : scope.trim());
    assert.equal(await page.locator("main bdi *").count(), 0);
    for (const width of [360, 768, 1280]) {
      await page.setViewportSize({ width, height: 740 });
      const [whole, shown] = await widths(page);
      assert.ok(whole <= shown, `${whole} px in a window of ${shown}`);
    }
  }
});

scenario("a page beyond the end says so, and leads back", async ({ page, open }) => {
  await open("#/agents?sort=id&status=Revoked&page=99");
  await settled(page);
  await page.getByText("beyond the end").waitFor();
  await previous(page).click();
  await url(page, "#/agents?status=Revoked&sort=id");
  assert.deepEqual(await rows(page), (await served("?status=Revoked")).rows);
  await open("#/agents?status=Revoked&cursor=0");
  await page.getByText("beyond the end").waitFor();
  await first(page).click();
  await url(page, "#/agents?status=Revoked");
  assert.deepEqual(await rows(page), (await served("?status=Revoked&sort=-id")).rows);
});

scenario("what is no wallet is refused at its field, and nothing is asked", async ({ page, front, open }) => {
  await open("#/agents");
  await settled(page);
  const asked = front.apiRequests.length;
  await page.getByLabel("Creator").fill("0x1234");
  await find(page);
  await page.getByText("Creator must be 0x and 40 hexadecimal digits.").waitFor();
  assert.ok(await page.getByLabel("Creator").evaluate((input) => input === document.activeElement));
  assert.ok(page.url().endsWith("#/agents"));
  assert.equal(front.apiRequests.length, asked);
});

scenario("an address that asks for what there is not is explained with field and rule", { faults: true }, async ({ page, open }) => {
  for (const query of ["status=Dormant", "page=0", "q=%2B"]) {
    await open(`#/agents?${query}`);
    await settled(page);
    const name = query.split("=")[0];
    const { error } = (await api(`/api/v1/agents?${query}`)).document;
    assert.match(error, new RegExp(name), "names the parameter");
    assert.ok((await page.locator("main").getByRole("alert").innerText()).includes(error), error);
  }
});

scenario("without an index agents are listed by id, and a search says why it cannot be", { faults: true }, async ({ page, front, open }) => {
  front.on(NO_INDEX_FOR_LISTS, NO_INDEX);
  for (const query of ["", "status=Active"]) {
    await open(`#/agents?${query}`);
    await page.getByText("This server keeps no index of the registry").waitFor();
    assert.deepEqual(await rows(page), (await served(`?${query}`)).rows);
  }
  await open("#/agents?q=berth");
  await settled(page);
  assert.match(await page.getByRole("alert").innerText(), /Not available here[^]*keeps none[^]*INDEX_REQUIRED/);
  await page.getByRole("link", { name: "Show all agents" }).click();
  assert.deepEqual(await rows(page), (await served("")).rows);
});
