// The list of agents.
//
// 1. Its pages are the API's, and their links stop at the ends.
// 2. Filter, page and size stand in the address: Back goes back, a reload and a copied address show the same.
// 3. A page beyond the end, and an address that asks for what there is not, are explained.

import assert from "node:assert/strict";

import { api } from "../harness/api.mjs";
import { scenario } from "../harness/scenario.mjs";
import { settled } from "../harness/views.mjs";

/** The ids and statuses on the screen. */
async function rows(page) {
  await settled(page);
  return page
    .locator("main table tbody tr")
    .evaluateAll((all) => all.map((row) => [...row.cells].slice(0, 2).map((cell) => cell.innerText.trim())));
}

/** What the API answers, in the same shape. */
async function served(query) {
  const { data, ...rest } = (await api(`/api/v1/agents${query}`)).document;
  return { ...rest, rows: data.map(({ agentId, status }) => [`Agent ${agentId}`, status]) };
}

const next = (page) => page.getByRole("link", { name: "Next page" });
const previous = (page) => page.getByRole("link", { name: "Previous page" });

scenario("the pages are the API's, from the first to the last and back", async ({ page, open }) => {
  await open("#/agents");
  const first = await served("");
  assert.ok(first.totalPages >= 3);
  assert.deepEqual(await rows(page), first.rows);
  assert.equal(await previous(page).getAttribute("aria-disabled"), "true");
  for (let number = 2; number <= first.totalPages; number += 1) {
    await next(page).click();
    await page.waitForURL(new RegExp(`page=${number}$`));
    assert.deepEqual(await rows(page), (await served(`?page=${number}`)).rows, `page ${number}`);
  }
  assert.equal(await next(page).getAttribute("aria-disabled"), "true");
  await previous(page).click();
  await page.waitForURL(new RegExp(`page=${first.totalPages - 1}$`));
  assert.deepEqual(await rows(page), (await served(`?page=${first.totalPages - 1}`)).rows);
});

scenario("the filter shows one status, in the address too", async ({ page, open }) => {
  await open("#/agents?page=2");
  await settled(page);
  for (const status of ["Suspended", "Revoked", "Terminated", "Active"]) {
    await page.getByLabel("Status").selectOption(status);
    await page.waitForURL(new RegExp(`#/agents\\?status=${status}$`));
    const answer = await served(`?status=${status}`);
    assert.ok(answer.total > 0);
    assert.deepEqual(await rows(page), answer.rows);
    assert.match(await page.locator("main").innerText(), new RegExp(`${answer.total} agents?, ${status}`));
  }
  await page.getByLabel("Status").selectOption("All");
  await page.waitForURL(/#\/agents$/);
  assert.deepEqual(await rows(page), (await served("")).rows);
});

scenario("Back and Forward go from view to view, and a reload shows the same", async ({ page, open }) => {
  await open("#/agents");
  await rows(page);
  await page.getByLabel("Status").selectOption("Active");
  await page.waitForURL(/status=Active$/);
  const active = await rows(page);
  await next(page).click();
  await page.waitForURL(/page=2$/);
  const second = await rows(page);
  assert.notDeepEqual(second, active);

  await page.goBack();
  assert.deepEqual(await rows(page), active);
  assert.equal(await page.getByLabel("Status").inputValue(), "Active");
  await page.goBack();
  assert.deepEqual(await rows(page), (await served("")).rows);
  assert.equal(await page.getByLabel("Status").inputValue(), "");
  await page.goForward();
  await page.goForward();
  assert.deepEqual(await rows(page), second);

  await page.reload();
  assert.deepEqual(await rows(page), second);
  const copy = await page.context().newPage();
  await copy.goto(page.url());
  assert.deepEqual(await rows(copy), second);
});

scenario("a page beyond the end says so, and leads back", async ({ page, open }) => {
  await open("#/agents?status=Revoked&page=99");
  await settled(page);
  await page.getByText("beyond the end").waitFor();
  await previous(page).click();
  await page.waitForURL(/#\/agents\?status=Revoked$/);
  assert.deepEqual(await rows(page), (await served("?status=Revoked")).rows);
});

scenario("an address that asks for what there is not is explained with field and rule", { faults: true }, async ({ page, open }) => {
  for (const query of ["?status=Dormant", "?page=0", "?limit=many"]) {
    await open(`#/agents${query}`);
    await settled(page);
    const { error } = (await api(`/api/v1/agents${query}`)).document;
    assert.match(error, new RegExp(/\?(\w+)/.exec(query)[1]), "names the parameter");
    assert.ok((await page.getByRole("alert").innerText()).includes(error), error);
  }
});
