// Of many copies of one request over two instances exactly one is admitted: with a real Redis, by the clients of two
// libraries and beside a daemon, and with Durable Objects, by two Workers. Prints what became of them.
//
// node nonces.mjs, with SETTING as JSON: {origin, chainId, settings, keys, daemon, redis}, where the daemon and `settings`
// have a table `[redis]` of this server; with WORKERD the Workers are asked, too.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as passed } from "node:timers/promises";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { privateKeyToAccount } from "viem/accounts";

import init, { Gate, LocalGate, MemoryNonces, NonceObject, RedisNonces } from "../../browser/pkg/gate-node.js";
import { answerTo } from "./answers.mjs";
import { requestOf } from "./signing.mjs";

const setting = JSON.parse(process.env.SETTING);
const { origin, redis } = setting;
setting.accounts = { good: privateKeyToAccount(setting.keys.good) };
await init();

const signed = async () => ({ ...(await requestOf({}, setting)), origin });
const outcomeOf = ({ status, reason }) => reason ?? String(status);
const outcome = async (gate, request) => outcomeOf(await answerTo(gate, [request]));

/** How often each outcome came of asking about 200 copies of a request, by turns. */
async function copies(...asks) {
  const request = await signed();
  const outcomes = await Promise.all(Array.from({ length: 200 }, (_, copy) => asks[copy % asks.length](request)));
  const counts = {};
  for (const name of outcomes) counts[name] = (counts[name] ?? 0) + 1;
  return { request, counts };
}

/** Waits until a request is admitted that was signed just before. */
async function admitted(gate) {
  for (;;) {
    const request = await signed();
    const name = await outcome(gate, request);
    if (name === "200") return request;
    await passed(100);
  }
}

const printed = {};
const nodeRedis = createClient({ url: redis });
const ioredis = new Redis(redis, { maxRetriesPerRequest: null });
for (const client of [nodeRedis, ioredis]) client.on("error", () => {});
await nodeRedis.connect();
const { settings } = setting;
const gates = [nodeRedis, ioredis].map(
  // Longer than usual: 200 requests at once, on a busy machine.
  (client) => new LocalGate({ settings, policy: "api", nonces: new RedisNonces(client, { timeoutMillis: 15_000 }) }),
);
const daemon = new Gate({ url: setting.daemon, policy: "api" });
for (const gate of [...gates, daemon]) await admitted(gate);

const { request, counts } = await copies(...gates.map((gate) => (copy) => outcome(gate, copy)));
printed.copies = counts;
// On a busy machine Redis may answer the daemon too late, which is no word about the nonce.
do printed.atDaemon = await outcome(daemon, request);
while (printed.atDaemon === "nonce_store_unavailable");
const ofDaemon = await admitted(daemon);
printed.ofDaemon = await Promise.all(gates.map((gate) => outcome(gate, ofDaemon)));

/** What a store says of a server that forgets keys once it is full. */
const configure = (name, value) => nodeRedis.sendCommand(["CONFIG", "SET", name, value]);
await configure("maxmemory", "100mb");
await configure("maxmemory-policy", "allkeys-lru");
const reports = [];
const report = (text) => reports.push(text);
const forgetful = new LocalGate({ settings, policy: "api", nonces: new RedisNonces(nodeRedis), report });
printed.forgetful = [await outcome(forgetful, await signed()), ...reports];
await configure("maxmemory-policy", "noeviction");
printed.forgetful.push(await outcome(forgetful, await signed()));

await configure("maxmemory", "1");
printed.full = await Promise.all(gates.map(async (gate) => outcome(gate, await signed())));
await configure("maxmemory", "0");

const before = await admitted(gates[0]);
await nodeRedis.sendCommand(["SHUTDOWN", "NOSAVE"]).catch(() => {});
printed.away = await Promise.all(gates.map(async (gate) => outcome(gate, await signed())));
const { port } = new URL(redis);
const options = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", port];
const again = spawn("redis-server", options, { stdio: "ignore" });
for (const gate of gates) await admitted(gate);
printed.before = await Promise.all(gates.map((gate) => outcome(gate, before)));
const never = { spend: () => new Promise(() => {}) };
printed.never = await outcome(new LocalGate({ settings, policy: "api", nonces: never }), await signed());
again.kill();
await once(again, "exit");

if (process.env.WORKERD) {
  const worker = await (await import("./workerd.mjs")).workers(setting);
  const asks = [0, 1].map((instance) => async (copy) => {
    return outcomeOf(await worker.ask(instance, { gate: "local", policy: "api", requests: [copy] }));
  });
  for (const ask of asks) while ((await ask(await signed())) !== "200") await passed(100);
  printed.copiesInWorkerd = (await copies(...asks)).counts;
  await worker.stop();
}

if (process.env.WORKERD) {
  // Node's own SQLite in place of workerd's, whose alarms no test can hurry.
  const { DatabaseSync } = await import("node:sqlite");
  const database = new DatabaseSync(":memory:");
  const exec = (sql, ...values) => {
    if (values.length === 0 && sql.startsWith("CREATE")) return database.exec(sql);
    const rows = database.prepare(sql).all(...values);
    return { toArray: () => rows };
  };
  let alarm = null;
  const storage = { sql: { exec }, getAlarm: async () => alarm, setAlarm: async (time) => void (alarm = time) };
  const object = new NonceObject({ storage });
  const spend = async (key, keepMillis) => {
    const body = JSON.stringify({ key, keepMillis });
    return (await object.fetch(new Request("https://nonces/", { method: "POST", body }))).text();
  };
  printed.object = [
    await spend("short", 1),
    await spend("long", 60_000),
    await spend("long", 60_000),
    alarm > Date.now(),
  ];
  for (let said = "reused"; said === "reused"; said = await spend("short", 1)) {
    await passed(5);
    alarm = null;
    await object.alarm();
  }
  printed.object.push(await spend("long", 60_000), alarm !== null);
}

/** What a store in Redis says before and after a failover that has come back to the same process. */
const MEMORY = "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n";
let failovers = 0;
const infoOf = () => `run_id:a\r\nuptime_in_seconds:1000\r\nmaster_replid:${failovers}\r\n${MEMORY}`;
const failing = new RedisNonces({ sendCommand: async ([name]) => (name === "SET" ? "OK" : infoOf()) });
const created = Math.floor(Date.now() / 1000);
printed.failover = [await failing.spend("a", created, 60_000)];
failovers += 1;
printed.failover.push(await failing.spend("a", created, 60_000));

/** What a store in memory says of nonces, one after the other. */
const now = Math.floor(Date.now() / 1000);
const memory = new MemoryNonces(2);
printed.memory = [
  // In the second of the start: an earlier process may have admitted it.
  memory.spend("a", now, 60_000),
  memory.spend("a", now + 9, 60_000),
  memory.spend("a", now + 9, 60_000),
  memory.spend("b", now + 9, 1),
  memory.spend("c", now + 9, 60_000),
];
while (memory.spend("c", now + 9, 60_000) === "full") await passed(100);
printed.memory.push(memory.spend("c", now + 9, 60_000), memory.spend("d", now + 9, 60_000));
process.stdout.write(JSON.stringify(printed), () => process.exit(0));
