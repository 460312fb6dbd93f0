// Changes as they come.
//
// 1. What happens on the chain appears while the page is open, the newest on top: who, what, from what to what, when. What has changed
//    before stands there at once.
// 2. It can be stopped, and goes on where it stopped: nothing is missed or shown twice.
// 3. A screen reader hears how it stands and what has come.
// 4. A connection that is lost is told of, and found again by itself; a cursor that is no longer good, and a service without an
//    index, are explained. Where nothing is streamed it is asked again and again.

import assert from "node:assert/strict";

import { Wallet, ZeroHash } from "ethers";

import { eventually } from "../harness/eventually.mjs";
import { scenario } from "../harness/scenario.mjs";
import { registry } from "../harness/stack.mjs";
import { CHANGES_FOLLOWED, following, NO_INDEX, settled } from "../harness/views.mjs";

/** Accounts that the node has unlocked: the registry's owner, a regulator too, and one without a role. */
const OWNER = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";
const OPERATOR = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
/** How long a change takes to appear, in milliseconds: two looks of the service, on a busy machine. */
const APPEARS = 60_000;

/** An agent of one's own, for other tests read the showcase's. The page has seen its registration. */
async function registered(page) {
  const wallet = Wallet.createRandom().address;
  const contract = await registry(OPERATOR);
  const sent = await contract.registerAgent(OPERATOR, wallet, ZeroHash, ZeroHash, "changes", 0, false);
  await sent.wait();
  const id = await contract.walletToAgent(wallet);
  await appears(async () => assert.equal((await rowsOf(page, id)).length, 1));
  return { id, wallet };
}

async function act(id, what) {
  const contract = await registry(OWNER);
  const sent = await (what === "suspend" ? contract.suspendAgent(id, "end to end") : contract.reactivateAgent(id));
  const { blockNumber } = await sent.wait();
  const { timestamp } = await contract.runner.provider.getBlock(blockNumber);
  return new Date(timestamp * 1_000).toISOString();
}

/** The rows about one agent, from the top: other tests change other agents meanwhile. */
async function rowsOf(page, id) {
  const rows = await page
    .getByRole("table", { name: "Changes" })
    .locator("tbody tr")
    .evaluateAll((all) =>
      all.map((row) => [
        ...[...row.cells].slice(0, 4).map((cell) => cell.innerText.trim().replace(/\s+/g, " ")),
        row.querySelector("time").dateTime,
        row.cells[5].textContent,
      ]),
    );
  return rows.filter(([agent]) => agent === `Agent ${id}`);
}

const appears = (probe) => eventually(probe, APPEARS);
const phase = (page, kind) => page.locator(`[data-feed=${kind}]`).waitFor({ timeout: APPEARS });

scenario("what happens on the chain appears while the page is open, the newest on top, and is heard", async ({ page, front, open }) => {
  await open("#/changes");
  await following({ page });
  await page.evaluate(noteWhatIsHeard);
  const status = page.locator("main").getByRole("status");
  assert.match(await status.innerText(), /^Live: /);
  const { id, wallet } = await registered(page);
  const suspended = ["Suspended", "Active Provision registered", "Suspended Ask for renewal registered", await act(id, "suspend")];
  await appears(async () => assert.deepEqual((await rowsOf(page, id))[0]?.slice(1, 5), suspended));
  const heard = await page.evaluate(() => window.heard);
  // Others may have changed something in the same moment.
  assert.ok(heard.some((text) => text === `Agent ${id}: Suspended` || /^\d+ changes$/.test(text)), heard.join());

  await page.getByRole("button", { name: "Pause" }).click();
  await phase(page, "paused");
  assert.match(await status.innerText(), /^Paused: /);
  const shown = await page.getByRole("table", { name: "Changes" }).innerText();
  const asked = front.apiRequests.length;
  const active = ["Active again", "Suspended Ask for renewal registered", "Active Provision registered", await act(id, "reactivate")];
  const resume = page.getByRole("button", { name: "Resume" });
  assert.ok(await resume.evaluate((button) => button === document.activeElement), "the button stays where it is");
  assert.equal(await page.getByRole("table", { name: "Changes" }).innerText(), shown);
  assert.equal(front.apiRequests.length, asked, "nothing is asked meanwhile");
  await resume.click();
  await appears(async () => {
    const rows = await rowsOf(page, id);
    assert.deepEqual(rows.slice(0, 2).map((row) => row.slice(1, 5)), [active, suspended]);
    assert.deepEqual(rows.slice(2).map((row) => row.slice(1, 4)), [["Registered", "Not registered", "Active Provision registered"]]);
    assert.ok(rows.every((row) => row[5] === wallet));
  });
  await page.getByRole("link", { name: `Agent ${id}` }).first().click();
  await page.getByRole("heading", { level: 1, name: `Agent ${id}`, exact: true }).waitFor();
});

/** Runs in the page: from now on, all that a screen reader is told. */
function noteWhatIsHeard() {
  window.heard = [];
  const note = () => window.heard.push(document.getElementById("announcer")?.textContent);
  new MutationObserver(note).observe(document, { subtree: true, childList: true, characterData: true });
}

scenario("a lost connection is told of and found again, and nothing is missed", { faults: true }, async ({ page, front, open }) => {
  await open("#/changes");
  await following({ page });
  const { id } = await registered(page);
  const reasons = async () => (await rowsOf(page, id)).map(([, reason]) => reason);
  front.on(CHANGES_FOLLOWED, { close: true });
  front.drop();
  await phase(page, "interrupted");
  const told = await page.locator("main").getByRole("status").innerText();
  assert.match(told, /^Interrupted\..*cannot be reached.*asked again by itself\.$/s);
  // Nothing more is heard of it: what has changed before stands there when the page opens.
  await appears(async () => {
    await page.reload();
    await phase(page, "interrupted");
    assert.deepEqual(await reasons(), ["Registered"]);
  });
  await act(id, "suspend");
  front.heal();
  await appears(async () => assert.deepEqual(await reasons(), ["Suspended", "Registered"]));
  await phase(page, "live");
});

scenario("where nothing is streamed the page asks again, and sees the same", async ({ page, front, open }) => {
  front.on(CHANGES_FOLLOWED, { headers: { accept: "application/json" } });
  await open("#/changes");
  await phase(page, "polling");
  await registered(page);
});

scenario("a cursor that is no longer good is explained, and it begins anew", { faults: true }, async ({ page, front, open }) => {
  const error = "These changes are no longer kept";
  const headers = { "cache-control": "no-store" };
  front.on(CHANGES_FOLLOWED, { answer: { status: 410, headers, body: JSON.stringify({ error, code: "CURSOR_EXPIRED" }) } });
  await open("#/changes");
  const alert = page.locator("main").getByRole("alert");
  await alert.waitFor();
  assert.match(await alert.innerText(), new RegExp(`Too long away[^]*${error}[^]*CURSOR_EXPIRED`));
  const asked = front.apiRequests.length;
  front.heal();
  await page.getByRole("button", { name: "Try again" }).click();
  await following({ page });
  assert.ok(front.apiRequests.length > asked);
});

scenario("a service without an index has no changes, and says so", { faults: true }, async ({ page, front, open }) => {
  front.on(/\/changes/, NO_INDEX);
  await open("#/changes");
  await settled(page);
  assert.match(await page.getByRole("alert").innerText(), /Not available here[^]*keeps none[^]*INDEX_REQUIRED/);
  assert.equal(await page.getByRole("button", { name: "Try again" }).count(), 0);
});
