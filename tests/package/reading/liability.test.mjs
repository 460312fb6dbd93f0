// Who is liable, in the package.
//
// 1. What a wallet signs by the package is what the core checks, and what another library signed is checked alike.
// 2. What does not hold says why: a member of the record, the header, the signature or the time.
// 3. The published schemas take the documents that are read, and none of another form.
// 4. A domain's file is read with its claims, is fetched from that domain alone, and has a size.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

import Ajv from "ajv/dist/2020.js";
import { privateKeyToAccount } from "viem/accounts";

import initLiability, {
  acceptanceHeader,
  checkAcceptance,
  fetchDomain,
  readDomainFile,
  signAcceptance,
  signDomain,
} from "../../../browser/pkg/liability-node.js";
import { test } from "../../browser/harness/declared.mjs";
import { RegistryError } from "../setting.mjs";

await initLiability();
const published = async (name) =>
  JSON.parse(await readFile(new URL(`../../../docs/liability/${name}.json`, import.meta.url), "utf8"));
const vectors = await published("vectors");
// The key of the vectors: 32 bytes 0x07.
const person = privateKeyToAccount(`0x${"07".repeat(32)}`);
const sign = (data) => person.signTypedData(data);
const [{ document, operationalScope }] = vectors.acceptances;
const { chainId, registry, notBefore, notAfter } = document;
const agent = { ...document, operationalScope, registeredAt: new Date(document.registeredAt * 1000).toISOString() };
const place = { chainId, registry, now: notBefore };

test("acceptances of another library hold, and the package signs the same", async () => {
  for (const { document, operationalScope, digest } of vectors.acceptances) {
    const registeredAt = new Date(document.registeredAt * 1000).toISOString();
    const record = { ...document, operationalScope, registeredAt };
    const at = { ...place, now: document.notBefore };
    for (const form of [document, JSON.stringify(document), acceptanceHeader(document)])
      assert.deepEqual(checkAcceptance(form, record, at), { digest });
    assert.deepEqual(await signAcceptance(record, document, sign), document);
  }
  await assert.rejects(signAcceptance({ ...agent, registeredAt: "then" }, document, sign), { code: "INVALID_PARAMETER" });
  const { notAfter: inAMonth, notBefore: now } = await signAcceptance(agent, { chainId, registry }, sign);
  assert.equal(inAMonth - now, 30 * 86_400);
});

test("what does not hold says why", () => {
  const { at: now, documents } = vectors.refused;
  for (const { rule, document, text, problem } of documents) {
    const checked = checkAcceptance(document ?? text, agent, { ...place, now });
    assert.equal(checked.problem, problem, rule);
  }
  for (const text of ["", "{", "=", "e30", "x".repeat(5_000)]) {
    const checked = checkAcceptance(text, agent, place);
    assert.match(checked.problem, /^(header|chainId)$/);
    assert.ok(!("digest" in checked), text);
  }
  for (const [bad, field] of [
    [() => checkAcceptance(document, { ...agent, creator: undefined }, place), "creator"],
    [() => checkAcceptance(document, { ...agent, agentId: "x" }, place), "agentId"],
    [() => checkAcceptance(document, agent, { chainId }), "registry"],
    [() => readDomainFile("{}", "acme.example", place), "liable"],
    [() => readDomainFile('{"liable":[]}', "acme.example:8443", place), "domain"],
  ])
    assert.throws(
      bad,
      (error) => error instanceof RegistryError && error.status === 400 && error.message.includes(field),
    );
});

test("the schemas take what is read, and no document of another form", async () => {
  const ajv = new Ajv();
  ajv.addSchema(await published("acceptance.schema"), "acceptance.schema.json");
  const file = ajv.compile(await published("kya-liable.schema"));
  const [{ entry }] = vectors.domains;
  const acceptances = vectors.acceptances.map(({ document }) => document);
  const whole = { liable: [entry], acceptances, withdrawn: [vectors.acceptances[0].digest], notOurs: ["7"] };
  assert.ok(file(whole), JSON.stringify(file.errors));
  for (const change of [{ more: 1 }, { liable: undefined }, { notOurs: [7] }, { withdrawn: ["0x00"] }])
    assert.ok(!file(JSON.parse(JSON.stringify({ ...whole, ...change }))), JSON.stringify(change));
  const forms = ["no member is unknown", "no member is missing", "the id is a string", "numbers are numbers"];
  for (const { rule, document } of vectors.refused.documents)
    if (forms.includes(rule)) assert.ok(!file({ ...whole, acceptances: [document] }), rule);
});

test("a domain's file is fetched from that domain alone, and its wallets have to name it", async () => {
  const domain = "acme.example";
  const claims = { legalName: 'Müller "GmbH"', lei: "5299000J2N45DDNE4Y28" };
  const entry = {
    ...(await signDomain(person.address, domain, { chainId, registry, notBefore, notAfter }, sign)),
    ...claims,
  };
  const elsewhere = { ...entry, registry: `0x${"98".repeat(20)}` };
  const copied = {
    ...(await signDomain(person.address, "other.example", { chainId, registry, notBefore, notAfter }, sign)),
  };
  const withdrawn = [vectors.acceptances[1].digest];
  const file = { liable: [entry, elsewhere, copied], acceptances: [document], withdrawn, notOurs: ["7"] };
  const asked = [];
  const answering = (response) => async (url, options) => {
    asked.push([url, options.redirect, options.credentials]);
    return response();
  };
  const read = await fetchDomain(domain, { ...place, fetch: answering(() => Response.json(file)) });
  const wallet = { wallet: person.address, notBefore, notAfter };
  assert.deepEqual(read, {
    domain,
    wallets: [
      { ...wallet, ...claims },
      { ...wallet, problem: "signature" },
    ],
    acceptances: [document],
    withdrawn,
    notOurs: ["7"],
  });
  assert.deepEqual(asked, [[`https://${domain}/.well-known/kya-liable.json`, "manual", "omit"]]);

  const refused = (domain, response) =>
    fetchDomain(domain, { ...place, fetch: answering(response) }).catch((error) => error);
  const huge = JSON.stringify({ ...file, notOurs: Array.from({ length: 60_000 }, (_, id) => String(id)) });
  assert.match((await refused(domain, () => new Response(huge))).message, /256 KiB/);
  for (const [status, body] of [[404, ""], [204, null]]) {
    const missing = await refused(domain, () => new Response(body, { status }));
    assert.ok(missing instanceof RegistryError && missing.code === "DOMAIN_UNAVAILABLE", String(missing));
    assert.match(missing.message, new RegExp(`answered ${status}$`));
  }
  const binary = await refused(domain, () => new Response(new Uint8Array([0xff])));
  assert.ok(binary instanceof RegistryError && binary.code === "INVALID_PARAMETER", String(binary));
  assert.match(binary.message, /must be UTF-8/);
  asked.length = 0;
  for (const name of ["acme.example/..", "127.0.0.1", "acme.example#", "Acme.example"])
    assert.match((await refused(name, () => Response.json(file))).message, /domain/);
  assert.deepEqual(asked, []);
});
