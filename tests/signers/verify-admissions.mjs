// Verifies admission records with viem and jose alone, and tries each with one byte changed: prints for each what it
// shows, and how many changed ones were accepted.
//
// node verify-admissions.mjs RECORDS JWKS CHANGES REGISTRY: the files of records and of the issuer's keys; how many
// changes to try of each record, 0 for one of every byte; the registry that verdicts have to be of (CAIP-10).

import { readFileSync } from "node:fs";
import { createLocalJWKSet, decodeJwt, jwtVerify } from "jose";
import { keccak256, recoverMessageAddress, stringToHex } from "viem";

const [records, jwks, changes, registry] = process.argv.slice(2);
const keys = createLocalJWKSet(JSON.parse(readFileSync(jwks, "utf8")));
const MEMBERS = [
  "version",
  "time",
  "policy",
  "policyHash",
  "registry",
  "account",
  "basis",
  "base",
  "signature",
  "verdict",
];

function ensure(holds, rule) {
  if (!holds) throw new Error(rule);
}

/** What a record shows; throws where it shows nothing. */
async function verify(line) {
  const record = JSON.parse(line);
  // As it was written: the evidence is the last member, and its text is covered as it is.
  const [head, evidence] = line.split(',"evidence":', 2);
  const raw = evidence === undefined ? undefined : line.slice(head.length + ',"evidence":'.length, -1);
  const written = JSON.stringify(Object.fromEntries(MEMBERS.map((name) => [name, record[name]])));
  ensure((raw === undefined ? line : `${head}}`) === written && record.version === 2, "form");
  ensure(Object.keys(record).length === MEMBERS.length + (raw === undefined ? 0 : 1), "members");
  // Of several spellings of a signature in base64url the shortest is the only one.
  const [, , signature] = record.verdict.split(".");
  ensure(Buffer.from(signature, "base64url").toString("base64url") === signature, "base64url");

  const options = { typ: "kya-verdict+jwt", algorithms: ["ES256"], currentDate: new Date(record.time) };
  const { payload } = await jwtVerify(record.verdict, keys, options);
  const { policy, account, base } = record;
  ensure(record.registry === registry, "another registry");
  const proof = raw === undefined ? "" : keccak256(stringToHex(raw));
  ensure(payload.registry === registry && payload.liability.basis === record.basis, "another basis");
  // No acceptance: neither its digest nor its signature.
  const grounds = [policy, registry, record.policyHash, record.basis, "", "", account, record.signature, proof, base];
  ensure(payload.jti === keccak256(stringToHex(grounds.join("\n"))), "another admission");
  ensure(record.time === new Date(payload.iat * 1000).toISOString(), "time");
  ensure(account === "key", "the account has code");
  const signer = await recoverMessageAddress({ message: base, signature: record.signature });
  const chain = payload.sub.split(":")[1];
  ensure(payload.sub === `eip155:${chain}:${signer.toLowerCase()}`, "another wallet");
  ensure(new RegExp(`;keyid="(eip155|erc8128):${chain}:${signer.toLowerCase()}"`).test(base), "keyid");
  const value = (name) => base.match(new RegExp(`^"${name}": (.*)$`, "m"))?.[1];
  ensure(payload.aud.endsWith(`//${value("@authority")}`), "another site");
  return { wallet: signer, method: value("@method"), path: value("@path"), decision: payload.decision };
}

/** The line with another byte at this place. */
function changed(line, place) {
  const other = 'abcdefghijklmnopqrstuvwxyz0123456789{}",:\\ ';
  const byte = other[(place * 7) % other.length];
  return line.slice(0, place) + (line[place] === byte ? "#" : byte) + line.slice(place + 1);
}

const shown = [];
for (const line of readFileSync(records, "utf8").trimEnd().split("\n")) {
  const count = Number(changes) || line.length;
  const accepted = [];
  for (let step = 0; step < count; step++) {
    const place = Math.floor((step * line.length) / count);
    const outcome = await verify(changed(line, place)).catch(() => undefined);
    if (outcome !== undefined) accepted.push(place);
  }
  shown.push({
    ...(await verify(line)),
    block: decodeJwt(JSON.parse(line).verdict).asOf.blockNumber,
    tried: count,
    accepted,
  });
}
console.log(JSON.stringify(shown));
