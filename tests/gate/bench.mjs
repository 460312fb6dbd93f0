// The processor's time of a request that a gate in process admits at a warm verdict, beside that of a signature check
// alone. Prints microseconds.
//
// node bench.mjs, with SETTING as JSON: {origin, chainId, settings, keys}.

import { recoverMessageAddress } from "viem";
import { privateKeyToAccount } from "viem/accounts";

import init, { LocalGate } from "../../browser/pkg/gate-node.js";
import { begun } from "./answers.mjs";
import { requestOf } from "./signing.mjs";

const REQUESTS = 1500;
const setting = JSON.parse(process.env.SETTING);
const { origin, settings, keys } = setting;
const account = privateKeyToAccount(keys.good);
setting.accounts = { good: account };
await init();
const gate = begun(() => new LocalGate({ settings, policy: "api" }));

/** Requests that are admitted once: half of them with content. */
async function requests() {
  const post = {
    method: "POST",
    target: "/orders",
    headers: [["content-type", "application/json"]],
    content: '{"amount":"100"}',
  };
  const signed = [];
  for (let at = 0; at < REQUESTS; at += 1) signed.push(await requestOf(at % 2 ? post : {}, setting));
  return signed;
}

/** The median of five parts: the machine may be busy in one of them. */
async function microseconds(inputs, use) {
  const part = Math.floor(inputs.length / 5);
  const times = [];
  for (let at = 0; at + part <= inputs.length; at += part) {
    const before = process.cpuUsage();
    for (const input of inputs.slice(at, at + part)) await use(input);
    const { user, system } = process.cpuUsage(before);
    times.push((user + system) / part);
  }
  return Math.round(times.sort((a, b) => a - b)[2]);
}

async function admitted({ method, target, lines, content }) {
  const { admitted, outcome } = await gate.ask(method, target, lines, content);
  if (!admitted) throw new Error(outcome);
}

async function admittedFrom({ method, target, lines, content }) {
  const body = content.length > 0 ? content : undefined;
  const { admitted, outcome } = await gate.admit(new Request(origin + target, { method, headers: lines, body }));
  if (!admitted) throw new Error(outcome);
}

const message = "a message of the length that signature bases have ".repeat(8);
const signature = await account.signMessage({ message });
// Once through, for the verdict and for the compilers.
for (const use of [admitted, admittedFrom]) for (const request of await requests()) await use(request);
console.log(
  JSON.stringify({
    asked: await microseconds(await requests(), admitted),
    fromRequest: await microseconds(await requests(), admittedFrom),
    signature: await microseconds(Array(REQUESTS).fill(), () => recoverMessageAddress({ message, signature })),
  }),
);
process.exit(0);
