// Text from the chain is untrusted: an agent with a scope made to harm the page is shown, and harms nothing.
//
// 1. Markup and scripts are text; nothing runs, nothing opens, nothing is loaded. (The guard watches every test of it.)
// 2. Direction overrides and invisible characters stay within their own text; the page is told apart from what it shows.
// 3. Two thousand letters without a space, in any script, do not widen the page at 360 px.
// 4. The text is shown whole, character by character as the chain has it, wherever it appears.

import assert from "node:assert/strict";

import { Wallet, ZeroHash } from "ethers";

import { scenario } from "../harness/scenario.mjs";
import { registry, stack } from "../harness/stack.mjs";
import { saveSettings, settled, verify, widths } from "../harness/views.mjs";

/** An account the node has unlocked. */
const OPERATOR = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";

const SCOPES = {
  "script tags and event handlers":
    `<script>alert("script")</script><img src=x onerror="alert('image')"><svg/onload=alert(1)>` +
    `</bdi></dd></main><h1>Owned</h1><a href="javascript:alert(2)">click</a><iframe srcdoc="<script>parent.alert(3)</script>"></iframe>` +
    `<style>*{display:none}</style>{{constructor.constructor("alert(4)")()}}\${alert(5)}<!-- `,
  "direction overrides": "safe \u202Egnp.exe\u2066\u2067 \u200Fabc\u061C) evil \u202D\u202B and no end to any of it",
  "invisible characters and stacked marks":
    `zero\u200Bwidth\u200D\uFEFF\u2060joined\u00AD, ${"Z" + "\u0310\u0333\u0335".repeat(60)}, control \u0001\u001B[31m`,
  "two thousand letters without a space": "A".repeat(2_048),
  "two thousand characters in many scripts": "東京مراجعة👩‍👩‍👧‍👦e\u0301\u202E<b>".repeat(120).slice(0, 2_048),
  "lines and tabs": "first\n\n\n\tsecond\r\n".repeat(40),
};

/** Registers an agent with this scope. Registering takes no permission. */
async function registered(scope) {
  const wallet = Wallet.createRandom().address;
  const contract = await registry(OPERATOR);
  const gasLimit = 5_000_000;
  const sent = await contract.registerAgent(OPERATOR, wallet, ZeroHash, ZeroHash, scope, 0, false, { gasLimit });
  await sent.wait();
  return { id: await contract.walletToAgent(wallet), wallet };
}

scenario("a scope made to harm the page is shown as text and harms nothing", { viewport: { width: 360, height: 740 } }, async (scene) => {
  const { page, open } = scene;
  await saveSettings(scene, { "RPC URL": stack.rpc });
  for (const [what, scope] of Object.entries(SCOPES)) {
    const { id, wallet } = await registered(scope);
    for (const hash of [`#/agent/${id}`, `#/wallet/${wallet}`]) {
      const where = `${what}, ${hash}`;
      await open(hash);
      await settled(page);
      const text = page.locator("main bdi").filter({ hasText: /\S/ }).first();
      assert.equal(await text.textContent(), scope, `${where}: as the chain has it`);
      assert.equal(await text.evaluate((element) => element.childElementCount), 0, `${where}: text, and no elements`);
      assert.equal(await text.evaluate((element) => getComputedStyle(element).unicodeBidi), "isolate", where);
      assert.deepEqual(await page.locator("h1").allInnerTexts(), [await page.locator("main h1").innerText()], `${where}: no heading of its own`);
      assert.ok((await page.title()).startsWith(hash.includes("agent") ? `Agent ${id}` : "Wallet"), `${where}: no title of its own`);
      assert.equal(await page.locator("main :is(script, img, iframe, style)").count(), 0, where);

      const [whole, shown] = await widths(page);
      assert.ok(whole <= shown, `${where}: the page is ${whole} px wide in a window of ${shown}`);
      const box = await text.boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= 360, `${where}: ${JSON.stringify(box)}`);
      // What stands after it is where it belongs: reachable, and in its own direction.
      const last = page.getByRole("button", { name: "Verify against the chain" });
      await last.scrollIntoViewIfNeeded();
      assert.equal(await last.evaluate((element) => getComputedStyle(element).direction), "ltr", where);
    }
    const { outcome, text } = await verify(page);
    assert.equal(outcome, "agreement", `${what}: ${text}`);
  }
});

scenario("hostile text in a difference of verification is text too", async (scene) => {
  const { page, open, front } = scene;
  const { id } = await registered(SCOPES["script tags and event handlers"]);
  await saveSettings(scene, { "RPC URL": stack.rpc });
  const lie = JSON.stringify(`<img src=x onerror=alert(1)>\u202E`);
  front.on(/\/agent\/\d+$/, { rewrite: (body) => body.replace(/"operationalScope":"(?:[^"\\]|\\.)*"/, () => `"operationalScope":${lie}`) });
  await open(`#/agent/${id}`);
  await settled(page);
  const { outcome, text } = await verify(page);
  assert.equal(outcome, "difference", text);
  assert.ok(text.includes("<img src=x onerror=alert(1)>") && text.includes("<script>"), text);
  assert.equal(await page.locator("main :is(script, img, iframe, style)").count(), 0);
});
