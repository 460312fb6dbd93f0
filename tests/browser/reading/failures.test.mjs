// Bad days: what the visitor sees when there is no answer, and how it goes on.
//
// 1. The API down, failing, or answering nonsense: said as what it is, with a button that asks again.
// 2. Too many requests: the refusal, the wait counted down, and asked again by itself.
// 3. An agent there is not; a page there is not.
// 4. A slow answer to an earlier question never replaces a later one's; a view that is left ends its requests.

import assert from "node:assert/strict";

import { eventually } from "../harness/eventually.mjs";
import { scenario } from "../harness/scenario.mjs";
import { stack } from "../harness/stack.mjs";
import { settled, TOO_MANY } from "../harness/views.mjs";

const { agents } = stack;
const faults = true;
const API = /^\/api\//;

const alertOf = (page) => page.locator("main").getByRole("alert").innerText();

scenario("when the API is down the page says so, and a click asks again", { faults }, async ({ page, front, open }) => {
  front.on(API, { close: true });
  for (const hash of ["#/", `#/wallet/${agents.kyoto.wallet}`, `#/agent/${agents.atlas.id}`, "#/agents", "#/statistics"]) {
    await open(hash);
    await settled(page);
    const alert = await alertOf(page);
    assert.match(alert, /No connection/, hash);
    assert.ok(alert.includes(front.url), alert);
  }
  front.heal();
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByRole("heading", { name: "By status" }).waitFor();
  assert.equal(await page.locator("main").getByRole("alert").count(), 0);
});

scenario("an error of the API's is shown in its words, with its code", { faults }, async ({ page, front, open }) => {
  const error = "The registry could not be read: the RPC endpoint did not answer in time.";
  front.on(API, { answer: { status: 500, body: JSON.stringify({ error, code: "RPC_TIMEOUT" }) } });
  await open(`#/wallet/${agents.kyoto.wallet}`);
  await settled(page);
  const alert = await alertOf(page);
  assert.ok(alert.includes(error), alert);
  assert.ok(alert.includes("RPC_TIMEOUT"), alert);
  assert.equal(await page.locator("[data-verdict]:visible").count(), 0, "no verdict without an answer");
  front.heal();
  await page.getByRole("button", { name: "Try again" }).click();
  await page.locator("[data-verdict=provision]").waitFor();
});

scenario("what is no document at all is an error too", { faults }, async ({ page, front, open }) => {
  const html = "<html><script>alert(1)</script><h1>Bad gateway</h1></html>";
  for (const [status, body] of [[502, html], [200, html], [200, ""], [200, "[]"], [200, '{"agent":null}']]) {
    front.on(API, { answer: { status, body, headers: { "content-type": "text/html" } } });
    await open("#/");
    await open(`#/agent/${agents.atlas.id}`);
    await settled(page);
    const alert = await alertOf(page);
    assert.ok(alert.length > 0, `${status} ${body}`);
    assert.ok(!alert.includes("<h1>"), alert);
  }
});

scenario("a visitor who asks too much is told how long to wait, and then the page asks again by itself", { faults }, async ({ page, front, open }) => {
  front.on(API, TOO_MANY);
  await open(`#/agent/${agents.atlas.id}`);
  await settled(page);
  assert.match(await alertOf(page), /Too many requests/);
  assert.match(await alertOf(page), /Rate limit exceeded\. Try again in 1 minute\./);
  assert.match(await page.locator("main").innerText(), /Asking again in (30|2\d) s\./);
  front.on(API, { answer: { ...TOO_MANY.answer, headers: { "retry-after": "2" } } });
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByText(/Asking again in [12] s/).waitFor();
  front.heal();
  await page.getByRole("heading", { name: "Record" }).waitFor();
  assert.equal(await page.locator("main").getByRole("alert").count(), 0);
});

scenario("an agent there is not is not found, in the API's words", { faults }, async ({ page, open }) => {
  for (const hash of ["#/agent/4711", "#/agent/4711/lineage"]) {
    await open(hash);
    await settled(page);
    assert.match(await alertOf(page), /Not found/);
    assert.match(await alertOf(page), /Agent not found: 4711/);
  }
});

scenario("an address that names no view says so", async ({ page, open }) => {
  for (const hash of ["#/nowhere", "#/agent", "#/agent/1/lineage/2", "#/constructor", "#/%E0%A4%A"]) {
    await open(hash);
    await page.getByRole("heading", { level: 1, name: "No such page" }).waitFor();
  }
});

scenario("a slow answer to an earlier question never replaces a later one's", async ({ page, front, open }) => {
  let release;
  front.on(new RegExp(`/kya/${agents.forgetful.wallet}`, "i"), { hold: new Promise((done) => (release = done)) });
  await open(`#/wallet/${agents.forgetful.wallet}`);
  await eventually(() => assert.ok(front.requests.some((path) => path.toLowerCase().includes(agents.forgetful.wallet.toLowerCase()))));
  await open(`#/wallet/${agents.kyoto.wallet}`);
  await page.locator("[data-verdict=provision]").waitFor();
  release();
  // A round trip of its own comes after what was released.
  await page.evaluate(() => fetch("/api/v1/stats").then((answer) => answer.text()));
  assert.equal(await page.locator("[data-verdict]").getAttribute("data-verdict"), "provision");
});

scenario("a view that is left ends its requests", { faults }, async ({ page, front, open }) => {
  let release;
  front.on(/\/kya\//, { hold: new Promise((done) => (release = done)) });
  const ended = page.waitForEvent("requestfailed", (request) => request.url().includes("/kya/"));
  await open(`#/wallet/${agents.kyoto.wallet}`);
  await eventually(() => assert.ok(front.requests.some((path) => path.includes("/kya/"))));
  await page.getByRole("link", { name: "Settings" }).click();
  assert.equal((await ended).failure().errorText, "net::ERR_ABORTED");
  release();
});
