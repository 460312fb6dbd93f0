// All cases of `cases.json`, asked of the daemon and of the package's gates, which have to answer alike:
//
//   the daemon         over HTTP, as Envoy asks it
//   the adapter        `Gate`, which asks another daemon of the same settings
//   the local gate     `LocalGate`, with verdicts from the chain and from the read API; and from `Request`s
//   in workerd         both again, where WORKERD is set
//
// node cases.mjs, with SETTING as JSON: {origin, chainId, api, daemon, adapter, settings, keys, accounts,
// acceptances}.
// Prints how many answers were compared, and what differs.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import http from "node:http";
import { setTimeout as passed } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { privateKeyToAccount } from "viem/accounts";

import init, { Gate, LocalGate } from "../../browser/pkg/gate-node.js";
import { answerTo, begun, ofDaemon } from "./answers.mjs";
import { requestOf } from "./signing.mjs";

const setting = JSON.parse(process.env.SETTING);
const { origin, keys, accounts } = setting;
for (const [name, key] of Object.entries(keys)) accounts[name] = privateKeyToAccount(key);
for (const [name, account] of Object.entries(accounts)) {
  if (typeof account === "string") accounts[name] = { address: account };
}

await init();
const apiSettings = setting.settings.replace("[kya]", `[kya]\napi = "${setting.api}"`);
const locally = (settings) => {
  const first = begun(() => new LocalGate({ settings, policy: "api" }));
  return (policy) => first.under(policy);
};
const inNode = (gateOf, options) => (policy, requests) => answerTo(gateOf(policy), requests, options);
const local = locally(setting.settings);
const subjects = {
  adapter: inNode((policy) => new Gate({ url: setting.adapter, policy })),
  "local gate": inNode(local),
  "local gate, from a Request": inNode(local, { asRequest: true }),
  "local gate, with the read API": inNode(locally(apiSettings)),
};
let workers;
if (process.env.WORKERD) {
  workers = await (await import("./workerd.mjs")).workers(setting);
  const inWorkerd = (gate, asRequest) => (policy, requests) => workers.ask(0, { gate, policy, requests, asRequest });
  subjects["adapter, in workerd"] = inWorkerd("adapter");
  subjects["local gate, in workerd"] = inWorkerd("local");
  subjects["local gate, from a Request, in workerd"] = inWorkerd("local", true);
}

/** Asks the daemon itself, byte for byte. */
const askDaemon = ({ policy, method, target, lines, content }) =>
  new Promise((resolve, reject) => {
    const headers = lines.flat();
    if (content.length > 0 && !lines.some(([name]) => name === "content-length")) {
      headers.push("content-length", String(content.length));
    }
    if (!lines.some(([name]) => name === "host")) headers.push("host", new URL(origin).host);
    const { hostname, port } = new URL(setting.daemon);
    const path = `/gate/${policy}${target}`;
    const asked = http.request({ hostname, port, method, path, headers, agent: false }, async (answer) => {
      const chunks = [];
      for await (const chunk of answer) chunks.push(chunk);
      resolve(ofDaemon(answer.statusCode, answer.headers, Buffer.concat(chunks).toString()));
    });
    asked.on("error", reject).end(content);
  });

/** What was signed before a gate began is refused: a case may have to wait until it was not. */
const began = Date.now() / 1000;
const mayBeSigned = async ({ sign }) => {
  while (sign?.created < 0 && Date.now() / 1000 + sign.created < began + 1) await passed(50);
};

const text = await readFile(new URL("cases.json", import.meta.url), "utf8");
const cases = JSON.parse(text.replaceAll(/\$\{(\w+)\}/g, (_, name) => setting.acceptances[name]));
const differences = [];
let compared = 0;
for (const entry of cases) {
  const { name, policy = "api", times = 1, status, reason, claims = [] } = entry;
  if (status === 200) await mayBeSigned(entry);
  const requests = async () => Array(times).fill({ ...(await requestOf(entry, { ...setting, accounts })), origin });
  let expected;
  for (const request of await requests()) expected = await askDaemon(request);
  if (expected.status !== status || (reason && expected.reason !== reason)) {
    differences.push({ name, subject: "daemon", expected: { status, reason }, answer: expected });
    continue;
  }
  for (const [subject, ask] of Object.entries(subjects)) {
    // A URL has one way to write a target, and the adapter's question has a host of its own.
    if ((entry.raw && subject.includes("Request")) || (entry.ofHost && subject.startsWith("adapter"))) continue;
    // Over HTTP a length is that of what is sent: only a `Request` may claim another one.
    if (claims.length > 0 && !subject.includes("Request")) continue;
    const asked = (await requests()).map((request) => ({ ...request, lines: [...request.lines, ...claims] }));
    const answer = await ask(policy, asked).catch((error) => ({ error: String(error?.stack ?? error) }));
    compared += 1;
    if (!isDeepStrictEqual(answer, expected)) differences.push({ name, subject, expected, answer });
  }
}
await workers?.stop();
assert(compared > cases.length);
process.stdout.write(JSON.stringify({ node: process.versions.node, cases: cases.length, compared, differences }), () =>
  process.exit(0),
);
