// What a gate in process reads, and what it does not begin with. Prints what it did.
//
// node reads.mjs, with SETTING as JSON: {origin, chainId, registry, settings, keys, accounts}.

import { privateKeyToAccount } from "viem/accounts";

import init, { LocalGate, MemoryNonces } from "../../browser/pkg/gate-node.js";
import { answerTo, begun } from "./answers.mjs";
import { requestOf } from "./signing.mjs";

const setting = JSON.parse(process.env.SETTING);
const { origin, settings, keys } = setting;
const accounts = Object.fromEntries(Object.entries(keys).map(([name, key]) => [name, privateKeyToAccount(key)]));
for (const [name, address] of Object.entries(setting.accounts)) accounts[name] = { address };
const signed = async (entry) => ({ ...(await requestOf(entry, { ...setting, accounts })), origin });
const { memory } = await init();

const printed = {};
const realNow = Date.now;

/**
 * What `run` gives, and how many milliseconds it takes by a clock that goes on to the next timer where all wait. Before
 * the first real request: the timers of its connection would be among them.
 */
async function timed(run) {
  const { setTimeout, clearTimeout } = globalThis;
  const [timers, began] = [new Map(), realNow()];
  let [clock, last, isDone] = [began, 0, false];
  Date.now = () => clock;
  globalThis.setTimeout = (callback, millis) => {
    last += 1;
    timers.set(last, { callback, at: clock + millis });
    return last;
  };
  globalThis.clearTimeout = (id) => void timers.delete(id);
  const result = run().finally(() => {
    isDone = true;
  });
  for (;;) {
    for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    if (isDone) break;
    const [[id, { callback, at }]] = [...timers].sort(([, one], [, other]) => one.at - other.at);
    timers.delete(id);
    clock = at;
    callback();
  }
  Object.assign(globalThis, { setTimeout, clearTimeout });
  Date.now = realNow;
  return [await result, clock - began];
}

/** Two signatures by strangers: their accounts are asked for one after the other, of a chain that hangs. */
const labels = ["a", "b"].map((label, at) => {
  const created = Math.floor(realNow() / 1_000);
  const keyid = `eip155:${setting.chainId}:0x${String(at + 1).repeat(40)}`;
  const times = `created=${created};expires=${created + 60};nonce="${label}"`;
  return `${label}=("@scheme" "@authority" "@method" "@path" "@query");${times};keyid="${keyid}";tag="erc8128"`;
});
const strangers = [
  ["signature-input", labels.join(", ")],
  ["signature", "a=:AAAA:, b=:AAAA:"],
];
const hanging = { rpc: "http://127.0.0.1:1,http://127.0.0.1:2", fetch: () => new Promise(() => {}), report: () => {} };
printed.late = [];
for (const policy of ["api", "observed"]) {
  const gate = new LocalGate({ settings, policy, ...hanging });
  const [{ admitted, outcome }, millis] = await timed(() => gate.ask("GET", "/items", strangers, new Uint8Array()));
  printed.late.push([admitted, outcome, millis]);
}

let reads = 0;
const counting = (...question) => {
  reads += 1;
  return fetch(...question);
};
const gate = begun(() => new LocalGate({ settings, policy: "api", fetch: counting }));

/** What became of requests, and how many reads each of them took. */
async function readsOf(gate, entries) {
  const seen = [];
  for (const entry of entries) {
    reads = 0;
    const { status, reason } = await answerTo(gate, [await signed(entry)]);
    seen.push([reason ?? status, reads]);
  }
  return seen;
}

const forged = { then: { target: "/other" } };
const ofCode = { sign: { by: "owner", as: "accepting" } };
printed.reads = await readsOf(gate, [{}, {}, forged, ofCode, ofCode]);
printed.unknown = await readsOf(gate, [{ sign: { by: "new" } }, { sign: { by: "new" } }]);
const few = settings.replace("[chain]", "[chain]\nreads-per-second = 1");
const reports = [];
const report = (text) => reports.push(text);
const bounded = begun(() => new LocalGate({ settings: few, policy: "api", fetch: counting, report }));
printed.bounded = await readsOf(bounded, [{}, { sign: { by: "suspended" } }]);
printed.reports = reports;

/** What is read while a request waits, which reads again a second later, where two a second are allowed. */
let clock = realNow();
Date.now = () => clock;
const two = settings.replace("[chain]", "[chain]\nreads-per-second = 2");
let release;
const held = new Promise((resolve) => (release = resolve));
let slow;
await new Promise((reached) => {
  let isFirst = true;
  const holding = async (...question) => {
    if (isFirst) {
      isFirst = false;
      reached();
      await held;
    }
    return fetch(...question);
  };
  const metered = new LocalGate({ settings: two, policy: "api", fetch: holding, report: () => {} });
  const reasonOf = async (by) => (await answerTo(metered, [await signed({ sign: { by } })])).reason;
  slow = { reasonOf, reason: reasonOf("coded") };
});
clock += 1_000;
printed.metered = [await slow.reasonOf("suspended"), await slow.reasonOf("new")];
release();
printed.metered.push(await slow.reason, await slow.reasonOf("own"));
Date.now = realNow;

/** A read API's answer about a wallet, by other hosts than it is wanted of. */
const api = settings.replace("[kya]", '[kya]\napi = "http://api.example"');
printed.otherRegistry = [];
for (const header of [undefined, `eip155:1:${setting.registry.toLowerCase()}`]) {
  const answers = async (url, init) =>
    String(url).startsWith("http://api.example")
      ? new Response("{}", { headers: header ? { "kya-registry": header } : {} })
      : fetch(url, init);
  const gate = new LocalGate({ settings: api, policy: "api", fetch: answers, report: () => {} });
  printed.otherRegistry.push((await answerTo(gate, [await signed({})])).reason);
}

/** How often the read API is asked for the verdict on an account that has code, for a signature of its key. */
const { address: wallet } = accounts.coded;
const asOf = { blockNumber: 1, blockTimestamp: new Date().toISOString(), parentHash: `0x${"0".repeat(64)}` };
const none = { wallet, decision: "deny", reasons: ["NOT_REGISTERED"], agent: null, compliantUntil: null, asOf };
printed.verdicts = 0;
const once = async (url, init) => {
  if (!String(url).startsWith("http://api.example")) return fetch(url, init);
  printed.verdicts += 1;
  return new Response(JSON.stringify(none), {
    headers: { "kya-registry": `eip155:${setting.chainId}:${setting.registry.toLowerCase()}` },
  });
};
const ofCoded = begun(() => new LocalGate({ settings: api, policy: "api", fetch: once, report: () => {} }));
printed.coded = (await answerTo(ofCoded, [await signed({ sign: { by: "coded" } })])).reason;

/** Content that is too long, or of an unsigned request. */
const long = "x".repeat(100);
const post = { method: "POST", target: "/orders", content: long };
printed.long = [];
printed.withheld = [];
for (const policy of ["api", "observed"]) {
  const gate = new LocalGate({ settings, policy, longestContent: 99 });
  const { method, target, lines, content } = await signed({ ...post, policy });
  const headers = policy === "observed" ? [...lines, ["kya-wallet", "0x1"], ["KYA_Liable", "me"]] : lines;
  const result = await gate.admit(new Request(origin + target, { method, headers, body: content }));
  if (result.admitted)
    printed.observed = [...result.request.headers.values()].filter((value) => /^(0x1|me)$/.test(value));
  printed.long.push(result.admitted ? (await result.request.text()).length : result.response.status);
  const broken = new ReadableStream({ pull: (stream) => stream.error(new Error("gone")) });
  const half = { method, headers: lines, body: broken, duplex: "half" };
  for (const { response, outcome } of [result, await gate.admit(new Request(origin + target, half))]) {
    const { discovery } = response ? await response.json() : {};
    printed.withheld.push([outcome, discovery, response?.headers.get("kya-wallet")]);
  }
}
let isRead = false;
const body = new ReadableStream({ pull: () => void (isRead = true) }, { highWaterMark: 0 });
const unsigned = await gate.admit(new Request(`${origin}/orders`, { method: "POST", body, duplex: "half" }));
printed.unsigned = [unsigned.response.status, isRead];
const { method, target, lines } = await signed(post);
const unread = await gate.ask(method, target, lines, undefined);
printed.unread = [unread.response?.status, unread.outcome];

/** A service's own mistake is no refusal of its client. */
const [used, locked] = [0, 1].map(() => new Request(origin + target, { method, headers: lines, body: long }));
await used.text();
locked.body.getReader();
const error = (request) => gate.admit(request).catch(({ name }) => name);
printed.used = [await error(used), await error(locked)];

/** Whether requests with long heads leave them in memory. */
const longHead = [["x-long", "x".repeat(100_000)]];
const { byteLength: before } = memory.buffer;
for (let request = 0; request < 2_000; request += 1) await gate.ask("GET", "/items", longHead, new Uint8Array());
printed.isKept = memory.buffer.byteLength - before > 4_000_000;

/** What does not begin, and why. */
const refused = (options) => {
  try {
    new LocalGate({ settings, policy: "api", ...options });
  } catch (error) {
    return error.message;
  }
};
printed.refused = [
  { settings: `listen = "127.0.0.1:4180"\n${settings}` },
  { settings: `${settings}\n[proxy]\ntarget = "path"` },
  { settings: `${settings}\n[verdict]\nissuer = "https://a.example"\nkeys = "keys.json"` },
  { settings: `${settings}\n[records]\nfile = "records"` },
  { settings: settings.replace("[kya]", '[kya]\napi = "http://a"\nfollow-changes = true') },
  { settings: `${settings}\n[redis]\nurl = "redis://127.0.0.1"` },
  { settings: `${settings}\n[redis]\nprefix = "a:"`, nonces: new MemoryNonces() },
  { settings: settings.replace("[chain]", "[chain]\nreads-in-flight = 1") },
  { settings: settings.replace("allow = ", 'liable.domains = ["acme.example"]\nallow = ') },
  { settings: `${settings}\n[liable]\nrefresh-seconds = 1` },
  { settings: settings.replace("allow = ", "alow = ") },
  { settings: `${settings}\nnot toml` },
  { settings: settings.replace(/rpc = .*/, 'rpc = "https://rpc.example/k3y"') },
  { settings: `discovery = { relayers = ["https://key@relay.example"] }\n${settings}` },
  { policy: "other" },
  { rpc: "k3y" },
].map(refused);
printed.document = JSON.parse(gate.discoveryDocument).chains;
const naming = `discovery = { relayers = ["https://relay.example"] }\n${settings}`;
const telling = new LocalGate({ settings: naming, policy: "api" });
const untold = await gate.ask("GET", "/items", [], new Uint8Array());
const told = await telling.ask("GET", "/items", [], new Uint8Array());
printed.told = [
  JSON.parse(gate.registryDocument).relayers,
  (await untold.response.json()).discovery,
  JSON.parse(telling.registryDocument).relayers,
  (await told.response.json()).discovery,
];
process.stdout.write(JSON.stringify(printed), () => process.exit(0));
