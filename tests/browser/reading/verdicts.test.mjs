// The verdict on a wallet, as a provider acts on it.
//
// 1. All four kinds, each with its reason; who is liable, and what is left of the attestation, as the chain has them.
// 2. The time left runs, and when it is over the verdict changes by itself.
//    Until the API says so, too, it is asked again.
// 3. A revoked agent's wallet is denied, unless another agent has taken it since.

import assert from "node:assert/strict";

import { eventually } from "../harness/eventually.mjs";
import { scenario } from "../harness/scenario.mjs";
import { registry, stack } from "../harness/stack.mjs";
import { UNREGISTERED, settled } from "../harness/views.mjs";

const { agents } = stack;
const HOUR = 3_600_000;
/** The contract's grace period: seven days. */
const GRACE = 7 * 24 * HOUR;

/** The verdict on a wallet: its kind and its words. */
async function verdictOn({ page, open }, wallet) {
  await open(`#/wallet/${wallet}`);
  await settled(page);
  const verdict = page.getByRole("status").filter({ visible: true });
  return { kind: await verdict.getAttribute("data-verdict"), text: await verdict.innerText(), verdict };
}

scenario("a compliant agent's wallet is provisioned, with who is liable and the time left", async (scene) => {
  const { kind, text, verdict } = await verdictOn(scene, agents.kyoto.wallet);
  assert.equal(kind, "provision");
  assert.match(text, /^Provision\n/);
  const record = await (await registry()).getAgentByWallet(agents.kyoto.wallet);
  const ends = new Date(Number(record.lastAttestation) * 1000 + GRACE);
  assert.equal(await verdict.locator("time").getAttribute("datetime"), ends.toISOString());
  assert.match(text, /4 d 23 h left/, `attested two days ago: ${text}`);
  const main = await scene.page.locator("main").textContent();
  assert.ok(main.includes(record.haftungsperson), "the liable person's whole address");
  assert.ok(main.includes(record.operationalScope), "its scope");
});

scenario("an agent whose attestation expired is asked for renewal", async (scene) => {
  const { kind, text, verdict } = await verdictOn(scene, agents.forgetful.wallet);
  assert.equal(kind, "renew-expired");
  assert.match(text, /^Ask for renewal\n/);
  assert.match(text, /expired/);
  const record = await (await registry()).getAgentByWallet(agents.forgetful.wallet);
  const ended = new Date(Number(record.lastAttestation) * 1000 + GRACE);
  assert.equal(await verdict.locator("time").first().getAttribute("datetime"), ended.toISOString());
  assert.match(text, /\b23 d( 0 h)? ago/, `attested thirty days ago: ${text}`);
  assert.ok((await scene.page.locator("main").textContent()).includes(record.haftungsperson));
});

scenario("a suspended agent is asked for renewal, and the suspension is the reason", async (scene) => {
  const { kind, text } = await verdictOn(scene, agents.paused.wallet);
  assert.equal(kind, "renew-stopped");
  assert.match(text, /^Ask for renewal\n/);
  assert.match(text, /suspended/);
  assert.match(text, /Status Suspended/);
});

scenario("a wallet without an agent is denied", async (scene) => {
  const { kind, text } = await verdictOn(scene, UNREGISTERED);
  assert.equal(kind, "deny");
  assert.match(text, /^Deny\n/);
  assert.match(text, /No live agent/);
  await scene.page.getByText("It was never registered.").waitFor();
});

scenario("a revoked agent's wallet is denied, unless another agent has taken it since", async (scene) => {
  const revoked = await verdictOn(scene, agents.impostor.wallet);
  assert.equal(revoked.kind, "deny");
  assert.match(revoked.text, /An agent that had this wallet before was revoked/);

  assert.equal(agents["lost-key"].wallet, agents.heir.wallet);
  const taken = await verdictOn(scene, agents["lost-key"].wallet);
  assert.equal(taken.kind, "provision");
  assert.match(taken.text, /An agent that had this wallet before was revoked/);
  const former = scene.page.getByRole("list", { name: "Former agents" });
  assert.match(await former.innerText(), new RegExp(`Agent ${agents["lost-key"].id}\\b.*Revoked`));
  await scene.page.getByRole("link", { name: `Agent ${agents.heir.id}`, exact: true }).waitFor();
});

/** What turns a compliant agent's verdict into that of a lapsed attestation. */
const EXPIRED = [
  ['"isCompliant":true', '"isCompliant":false'],
  ['"decision":"provision","reasons":[', '"decision":"request_renewal","reasons":["ATTESTATION_EXPIRED"'],
];
const expired = (body) => EXPIRED.reduce((text, [from, to]) => text.replace(from, to), body);

/**
 * A page with a clock of its own that shows a verdict to provision. `asked` counts its questions; from `end` on the
 * API judges otherwise, as if its clock had run as well.
 */
async function onOwnClock(scene) {
  const { page, front } = scene;
  let isOver = false;
  front.on(/\/kya\//, { rewrite: (body) => (isOver ? expired(body) : body) });
  await page.clock.install({ time: new Date() });
  const { kind, verdict } = await verdictOn(scene, agents.ledger.wallet);
  assert.equal(kind, "provision");
  const asked = () => front.requests.filter((path) => path.includes("/kya/")).length;
  return { verdict, asked, end: () => (isOver = true) };
}

// The page's clock is another from then on.
scenario("the time left runs, and when it is over the verdict changes by itself", { alone: true }, async (scene) => {
  const { page } = scene;
  const { verdict, asked, end } = await onOwnClock(scene);
  // Once a minute there are no seconds to name.
  const secondsLeft = async () => {
    const [, minutes, seconds = 0] = /(\d+) min(?: (\d+) s)? left/.exec(await verdict.innerText());
    return Number(minutes) * 60 + Number(seconds);
  };
  const atFirst = await secondsLeft();
  assert.ok(atFirst >= 1_200 && atFirst < 3_600, `attested seven days less an hour ago: ${atFirst} s`);

  // As a browser does that translates the page: other nodes are in the place of texts.
  await page.evaluate(() => {
    for (const place of document.querySelectorAll(".left")) {
      const font = document.createElement("font");
      font.textContent = place.textContent;
      place.replaceChildren(font);
    }
  });
  await page.clock.fastForward("10:00");
  await eventually(async () => {
    const run = atFirst - (await secondsLeft());
    assert.ok(run >= 600 && run < 640, `${run} s`);
  });
  assert.equal(asked(), 1);
  end();
  await page.clock.fastForward("01:00:00");
  const changed = page.locator("[data-verdict=renew-expired]");
  await changed.waitFor();
  assert.match(await changed.innerText(), /Attestation expired .* ago/);
  const expiry = changed.locator(".verdict-time");
  assert.equal(await expiry.getAttribute("aria-live"), "off", "a screen reader is not told each second anew");
  await page.clock.runFor("01:00");
  assert.equal(asked(), 2, "asked once, and not again and again");
});

// The page's clock is another from then on.
scenario("an expired verdict is asked for until the API has another, and not before its last second is over", { alone: true }, async (scene) => {
  const { page } = scene;
  const { verdict, asked, end } = await onOwnClock(scene);
  const lastSecond = Date.parse(await verdict.locator("time").getAttribute("datetime"));
  await page.clock.pauseAt(lastSecond + 500);
  await eventually(async () => assert.match(await verdict.innerText(), /\b0 s left/));
  assert.equal(asked(), 1, "it is compliant for half a second more");
  await page.clock.runFor(1_500);
  await eventually(() => assert.equal(asked(), 2));
  await settled(page);
  assert.equal(await verdict.getAttribute("data-verdict"), "provision", "the API's clock is behind");
  end();
  await page.clock.runFor(15_000);
  await page.locator("[data-verdict=renew-expired]").waitFor();
  assert.equal(asked(), 3);
});
