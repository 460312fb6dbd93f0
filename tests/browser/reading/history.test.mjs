// What happened to an agent.
//
// 1. The line has the chain's events, the oldest first, each with its time and transaction; a regulator's reason is text.
// 2. An agent with many events has pages.
// 3. From the agent's page one link leads there.
// 4. What is missing is told with the reason; so are an agent there is not, a wrong cursor and a service without an index.

import assert from "node:assert/strict";

import { api } from "../harness/api.mjs";
import { scenario } from "../harness/scenario.mjs";
import { registry, stack } from "../harness/stack.mjs";
import { NO_INDEX, settled, widths } from "../harness/views.mjs";

const { agents } = stack;

/** How the page calls the contract's events. */
const TITLES = {
  AgentRegistered: "Registered",
  ComplianceAttested: "Attested",
  RevenueReported: "Revenue reported",
  AgentSuspended: "Suspended",
  AgentReactivated: "Active again",
  AgentRevoked: "Revoked",
  AgentTerminated: "Terminated",
};

const contract = await registry();
const { provider } = contract.runner;

/** An agent's events as the chain has them, in their order: title, time, transaction and reason. */
async function eventsOf(id) {
  const logs = (await contract.queryFilter("*", 0)).filter(({ args }) => args !== undefined);
  const about = logs.filter(({ fragment, args }) => fragment.name in TITLES && Number(args.agentId) === id);
  const children = logs.filter(({ fragment, args }) => fragment.name === "AgentRegistered" && Number(args.parentAgentId ?? 0) === id);
  const titled = [
    ...about.map((log) => [TITLES[log.fragment.name], log]),
    ...children.map((log) => ["Child registered", log]),
  ].sort(([, a], [, b]) => a.blockNumber - b.blockNumber || a.index - b.index);
  return Promise.all(
    titled.map(async ([title, { blockNumber, transactionHash, args }]) => {
      const { timestamp } = await provider.getBlock(blockNumber);
      return [title, new Date(timestamp * 1_000).toISOString(), transactionHash, args.reason ?? ""];
    }),
  );
}

/** The same from the page. */
async function shown(page) {
  await settled(page);
  return page
    .getByRole("list", { name: "History" })
    .locator("> li")
    .evaluateAll((all) =>
      all.map((item) => [
        item.querySelector("strong").textContent,
        item.querySelector("time").dateTime,
        item.querySelector(".timeline-source .hex").textContent,
        item.querySelector(".chain-text")?.textContent ?? "",
      ]),
    );
}

scenario("the line has the chain's events, the oldest first", async ({ page, open }) => {
  for (const name of ["paused", "atlas", "second-chance", "impostor", "gone"]) {
    const expected = await eventsOf(agents[name].id);
    assert.equal(expected[0][0], "Registered", name);
    assert.ok(expected.length > 1, name);
    await open(`#/agent/${agents[name].id}/history`);
    assert.deepEqual(await shown(page), expected, name);
    assert.equal(await page.getByRole("note").count(), 0, `${name}'s is complete`);
  }
});

scenario("an agent with many events has pages", async ({ page, open }) => {
  const expected = await eventsOf(agents.harbour.id);
  await open(`#/agent/${agents.harbour.id}/history`);
  const all = await shown(page);
  const first = [...all];
  const next = page.getByRole("link", { name: "Next page" });
  let pages = 1;
  while ((await next.getAttribute("aria-disabled")) === null) {
    const before = page.url();
    await next.click();
    await page.waitForURL((url) => url.href !== before);
    all.push(...(await shown(page)));
    pages += 1;
  }
  assert.deepEqual(all, expected);
  assert.ok(pages > 1);
  await page.getByRole("link", { name: "First page" }).click();
  await page.waitForURL(/\/history$/);
  assert.deepEqual(await shown(page), first);
});

scenario("from an agent's page one link leads to its history, and back", async ({ page, open }) => {
  await open(`#/agent/${agents.paused.id}`);
  await settled(page);
  await page.getByRole("link", { name: "What happened to it" }).click();
  await page.getByRole("heading", { level: 1, name: `History of agent ${agents.paused.id}` }).waitFor();
  await settled(page);
  await page.locator("main").getByRole("link", { name: `Agent ${agents.paused.id}`, exact: true }).first().click();
  await page.getByRole("heading", { level: 1, name: `Agent ${agents.paused.id}`, exact: true }).waitFor();
});

scenario("what is missing is told, with the reason and the block it begins at", async ({ page, front, open }) => {
  const cases = [
    ["NO_LOGS", "null", "[]", /^Incomplete, because the node .* serves no events\.$/],
    ["LOG_RANGE", "7", null, /^Incomplete, because the node .* few blocks at once\. Events before block 7 are not shown\.$/],
    ["EVENTS_MISSING", "9", null, /^Incomplete, because the node .* pruned events\. Events before block 9 are not shown\.$/],
  ];
  for (const [because, from, data, words] of cases) {
    front.on(/\/history$/, {
      rewrite: (body) => {
        const document = { ...JSON.parse(body), complete: false, incompleteBecause: because, fromBlock: JSON.parse(from) };
        return JSON.stringify(data === null ? document : { ...document, data: [] });
      },
    });
    await open("#/");
    await open(`#/agent/${agents.paused.id}/history`);
    await settled(page);
    assert.match(await page.getByRole("note").innerText(), words);
    assert.equal(await page.getByRole("list", { name: "History" }).count(), data === null ? 1 : 0);
    if (data !== null) await page.getByText("No event is known.").waitFor();
  }
});

scenario("a reason of any text is text, and stays within the page", { viewport: { width: 360, height: 740 } }, async ({ page, front, open }) => {
  for (const reason of ["<img src=x onerror=alert(1)><b>bold", "safe \u202Egnp.exe\u2066", "A".repeat(2_048)]) {
    front.on(/\/history$/, { rewrite: (body) => body.replace(/"reason":"[^"]*"/, () => `"reason":${JSON.stringify(reason)}`) });
    await open("#/");
    await open(`#/agent/${agents.paused.id}/history`);
    const told = (await shown(page)).map(([, , , text]) => text).filter((text) => text !== "");
    assert.equal(told[0], reason);
    assert.equal(await page.locator("main bdi *").count(), 0);
    const [whole, visible] = await widths(page);
    assert.ok(whole <= visible, `${whole} px in a window of ${visible}`);
  }
});

scenario("an agent there is not, a wrong cursor and a service without an index are explained", { faults: true }, async ({ page, front, open }) => {
  for (const path of ["4711/history", `${agents.atlas.id}/history?cursor=first`]) {
    await open(`#/agent/${path}`);
    await settled(page);
    const { error } = (await api(`/api/v1/agent/${path}`)).document;
    assert.ok((await page.getByRole("alert").innerText()).includes(error), error);
  }
  front.on(/\/history/, NO_INDEX);
  await open(`#/agent/${agents.atlas.id}/history`);
  await settled(page);
  assert.match(await page.getByRole("alert").innerText(), /Not available here[^]*keeps none[^]*INDEX_REQUIRED/);
});
