// Changes as they come: what they are called, what the page keeps of them, and how it goes from one phase to the next.
import assert from "node:assert/strict";
import { test } from "node:test";

import { reasonOf } from "../src/change";
import { begin, MOST, step } from "../src/feed";

const standing = (status, decision = "request_renewal", basis = "named") => ({ status, decision, basis });
const active = standing("Active", "provision");
const lapsed = standing("Active");
const suspended = standing("Suspended");
const revoked = standing("Revoked", "deny");

const change = (number) => ({ cursor: `1-${number}`, agentId: number, from: null, to: active });
const changes = (...numbers) => ({ kind: "changes", changes: numbers.map(change) });
const live = { kind: "connected", isLive: true };
const polling = { kind: "connected", isLive: false };
const interrupted = { kind: "interrupted", error: new Error("no answer") };
const ended = { kind: "ended", error: new Error("too long away") };
const paused = { kind: "paused" };
const resumed = { kind: "resumed" };
const run = (...steps) => steps.reduce(step, begin({ data: [], next: "1-0" }));

test("a change is called by what happened to the agent", () => {
  const cases = [
    [null, active, "Registered"],
    [null, suspended, "Registered, then Suspended"],
    [active, lapsed, "Attestation lapsed"],
    [lapsed, active, "Attested"],
    [active, suspended, "Suspended"],
    [suspended, active, "Active again"],
    [suspended, lapsed, "Active again"],
    [lapsed, standing("Active", "request_renewal", "attested"), "Liable wallet attested"],
    [standing("Active", "provision", "attested"), active, "Liability: attested, now named"],
    [suspended, revoked, "Revoked"],
    [active, standing("Terminated", "deny"), "Terminated"],
    [revoked, suspended, "Revoked: undone by a reorganisation"],
    [active, null, "Registration undone by a reorganisation"],
  ];
  for (const [from, to, reason] of cases) assert.equal(reasonOf({ from, to }), reason);
});

test("it begins with the newest changes, and goes on behind them", () => {
  const feed = begin({ data: [1, 2].map(change), next: "1-2" });
  assert.deepEqual(
    step(feed, changes(3)).changes.map(({ agentId }) => agentId),
    [3, 2, 1],
  );
  assert.equal(feed.cursor, "1-2");
});

test("the newest change is on top, and it goes on behind it", () => {
  const feed = run(live, changes(1, 2), changes(3));
  assert.deepEqual(
    feed.changes.map(({ agentId }) => agentId),
    [3, 2, 1],
  );
  assert.equal(feed.cursor, "1-3");
  assert.equal(run(live, changes()).cursor, "1-0");
});

test("rows are bounded, and it is told that there were more", () => {
  const numbers = Array.from({ length: MOST }, (_, index) => index + 1);
  const full = run(changes(...numbers));
  assert.deepEqual([full.changes.length, full.isCut], [MOST, false]);
  const cut = step(full, changes(MOST + 1));
  assert.deepEqual([cut.changes.length, cut.changes[0].agentId, cut.isCut], [MOST, MOST + 1, true]);
  assert.equal(step(cut, changes(MOST + 2)).isCut, true);
});

test("every phase leads where the table says", () => {
  const phases = (...steps) => run(...steps).phase.kind;
  assert.equal(phases(), "connecting");
  assert.equal(phases(live), "live");
  assert.equal(phases(polling), "polling");
  assert.equal(phases(interrupted), "interrupted");
  assert.equal(phases(live, interrupted, live), "live");
  assert.equal(phases(interrupted, polling), "polling");
  for (const before of [[], [live], [polling], [interrupted]]) {
    assert.equal(phases(...before, paused), "paused");
    assert.equal(phases(...before, ended), "ended");
  }
  assert.equal(phases(live, paused, resumed), "connecting");
});

test("while it is paused nothing moves, and it goes on where it stopped", () => {
  const before = run(live, changes(1), paused);
  for (const heard of [changes(2), live, interrupted, ended]) assert.equal(step(before, heard), before);
  assert.equal(step(before, resumed).cursor, "1-1");
});

test("what has ended stays ended", () => {
  const before = run(live, ended);
  for (const heard of [changes(2), live, paused, resumed]) assert.equal(step(before, heard), before);
});

test("the same phase again draws nothing anew", () => {
  const before = run(live);
  assert.equal(step(before, live), before);
});
