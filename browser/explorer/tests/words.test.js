// What people read: amounts with all digits, times in two units, verdicts, and what is wrong with what they typed.
import assert from "node:assert/strict";
import { test } from "node:test";

import { counted, day, duration, sentences, units } from "../src/format";
import { target } from "../src/parts/search";
import { gasFor } from "../src/registration";
import { hrefTo, routeOf } from "../src/router";
import { urlFault } from "../src/settings";
import { attestationEnds, GRACE, pastOf, verdictOf } from "../src/verdict";

test("cents become units without losing one", () => {
  assert.equal(units(0), "0.00");
  assert.equal(units(5), "0.05");
  assert.equal(units(123456), "1,234.56");
  assert.equal(units(9007199254740993n), "90,071,992,547,409.93");
  assert.equal(units(2n ** 256n - 1n).replace(/[,.]/g, ""), String(2n ** 256n - 1n));
});

test("spans of time have two units, without empty ones", () => {
  assert.deepEqual([-5, 0, 59.9, 60, 3_661, 86_400, 90_000, 604_799].map(duration), [
    "0 s",
    "0 s",
    "59 s",
    "1 min",
    "1 h 1 min",
    "1 d",
    "1 d 1 h",
    "6 d 23 h",
  ]);
});

test("years that no calendar knows are shown as served", () => {
  assert.equal(day("+584554051223-11-09T07:00:15.000Z"), "+584554051223-11-09T07:00:15.000Z");
});

test("counts and sentences read well", () => {
  assert.deepEqual(
    [counted(1, "child", "children"), counted(2n, "agent"), counted(0, "agent")],
    ["1 child", "2 agents", "0 agents"],
  );
  assert.equal(sentences("One", "Two.", "Three?"), "One. Two. Three?");
});

test("a verdict is one of four", () => {
  const kind = (decision, ...reasons) => verdictOf({ decision, reasons });
  assert.equal(kind("provision"), "provision");
  assert.equal(kind("provision", "FORMER_AGENT_REVOKED"), "provision", "a remark decides nothing");
  assert.equal(kind("request_renewal", "ATTESTATION_EXPIRED", "ANCESTOR_NOT_ACTIVE"), "renew-expired");
  assert.equal(kind("request_renewal", "SUSPENDED", "ATTESTATION_EXPIRED"), "renew-stopped");
  assert.equal(kind("request_renewal", "REVOKED"), "renew-stopped");
  assert.equal(kind("deny", "NOT_REGISTERED"), "deny");
});

test("what is not known of the past is never told as clean", () => {
  const told = (registration, formerAgents, unknownBecause) => pastOf({ registration, formerAgents, unknownBecause });
  assert.match(told("unknown", "unknown", "NOT_SCANNED"), /is unknown: the registry has not been read/);
  assert.match(told("current", "unknown", "TOO_MANY_AGENTS"), /is unknown: the registry has more agents/);
  assert.match(told("current", "unknown"), /is unknown/);
  assert.equal(told("never", []), "It was never registered.");
  assert.equal(told("current", []), "No other agent had it before.");
  assert.equal(told("former", [{}]), "Other agents had it before, and have ended.");
});

test("the end of an attestation is told only where the API does not contradict it", () => {
  const now = Date.parse("2026-11-21T12:00:00.000Z");
  const attested = (ago) => ({ lastAttestation: new Date(now - ago).toISOString() });
  assert.equal(attestationEnds(attested(0), true, now), new Date(now + GRACE).toISOString());
  assert.equal(attestationEnds(attested(GRACE + 1_000), true, now), new Date(now - 1_000).toISOString(), "two clocks");
  assert.equal(attestationEnds(attested(GRACE + 3_600_000), true, now), undefined, "a longer grace period");
  assert.equal(attestationEnds(attested(3_600_000), false, now), undefined, "a shorter one");
  assert.equal(attestationEnds(attested(GRACE + 3_600_000), false, now), new Date(now - 3_600_000).toISOString());
});

test("a search finds wallets and ids of any size, and nothing else", () => {
  const wallet = "0xF8BAF884A2a20d918e118b6de84D1B1bB02f5eb1";
  assert.equal(target(wallet), `#/wallet/${wallet}`);
  assert.equal(target("007"), "#/agent/7");
  assert.equal(target(String(2n ** 256n - 1n)), `#/agent/${2n ** 256n - 1n}`);
  for (const text of ["", "0", "-1", "1.5", "0x12", `${wallet}0`, wallet.slice(2), "agent 11", "kyoto", "1".repeat(79)])
    assert.equal(target(text), undefined, text);
});

test("addresses survive being written and read", () => {
  const href = hrefTo(["agents", "a/b?c"], { status: "Active", page: 2, limit: undefined });
  assert.equal(href, "#/agents/a%2Fb%3Fc?status=Active&page=2");
  assert.deepEqual(routeOf(href).segments, ["agents", "a/b?c"]);
  assert.equal(routeOf(href).query.get("page"), "2");
  assert.deepEqual(routeOf("#/agent/%zz").segments, ["agent", "%zz"], "what cannot be decoded stays");
});

test("services are reached by https, or on this computer", () => {
  for (const url of ["https://rpc.example.org/key?a=b", "http://127.0.0.1:8545", "http://localhost:3001"])
    assert.equal(urlFault(url), undefined, url);
  for (const [url, rule] of [
    ["", /^must be a whole address/],
    ["rpc.example.org", /^must be a whole address/],
    ["http://rpc.example.org", /^must begin with https:/],
    ["ftp://127.0.0.1", /^must begin with https:/],
    ["javascript:alert(1)", /^must begin with https:/],
    ["https://user:secret@rpc.example.org", /^must not hold a user name or password/],
  ]) {
    assert.match(urlFault(url), rule, url);
  }
});

test("a longer scope asks for more gas", () => {
  assert.ok(gasFor("🥐".repeat(9)) > gasFor("🥐"));
  assert.ok(gasFor("") >= 300_000);
});
