// What a list's address asks for, and which question to the API that is.
import assert from "node:assert/strict";
import { test } from "node:test";

import { askedOf, inChainOrder, isFiltered, isFirstPage, isOfChain, listHref, pathOf } from "../src/listing";
import { routeOf } from "../src/router";

const asked = (query) => askedOf(new URLSearchParams(query));
const path = (query) => pathOf(asked(query));

test("a list without a word is of the newest agents, from the index", () => {
  assert.equal(path(""), "/api/v1/agents?sort=-id");
  assert.equal(path("status=Active&limit=50"), "/api/v1/agents?status=Active&sort=-id&limit=50");
  assert.equal(path("sort=-registration"), "/api/v1/agents?sort=-id");
  assert.equal(isOfChain(asked("")), false);
});

test("in the order of ids it is the chain's, unless something takes an index", () => {
  for (const query of [
    "sort=id",
    "sort=registration",
    "page=1",
    "sort=id&status=Active&limit=50",
    "page=2&status=Active",
  ])
    assert.equal(isOfChain(asked(query)), true, query);
  for (const query of [
    "sort=id&q=tax",
    "sort=id&compliant=true",
    "sort=id&cursor=7",
    "page=2&generation=0",
    "sort=attestation",
  ])
    assert.equal(isOfChain(asked(query)), false, query);
  assert.equal(path("sort=id"), "/api/v1/agents");
  assert.equal(path("page=2&limit=50"), "/api/v1/agents?limit=50&page=2");
  assert.equal(path("sort=id&parent=7"), "/api/v1/agents?parent=7&sort=id");
});

test("a service without an index has the same agents by id, if nothing is searched for", () => {
  assert.equal(pathOf(inChainOrder(asked("status=Revoked&sort=-attestation"))), "/api/v1/agents?status=Revoked");
  assert.equal(isOfChain(inChainOrder(asked("q=tax"))), false);
});

test("an address survives being written and read, without what goes without saying", () => {
  for (const query of [
    "",
    "q=tax+papers&creator=0x12",
    "sort=id&page=3",
    "status=Active&sort=attestation&cursor=7-8",
  ]) {
    const before = asked(query);
    const href = listHref(before);
    assert.deepEqual(askedOf(routeOf(href).query), before, href);
  }
  assert.equal(listHref({}), "#/agents");
  assert.equal(listHref(asked("limit=20&sort=-id")), "#/agents");
  assert.equal(listHref(asked("page=2")), "#/agents?page=2");
  assert.equal(listHref({ ...asked("page=2"), page: "" }), "#/agents?sort=id");
});

test("what leaves agents out is told from what only orders them", () => {
  assert.deepEqual(
    ["status=Active", "q=tax", "generation=0"].map((query) => isFiltered(asked(query))),
    [true, true, true],
  );
  assert.equal(isFiltered(asked("sort=attestation&limit=50&cursor=7")), false);
  assert.deepEqual(
    ["", "page=1", "page=2", "cursor=7"].map((query) => isFirstPage(asked(query))),
    [true, true, false, false],
  );
});
