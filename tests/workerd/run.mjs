// Runs Workers in workerd as their wrangler configurations say, on sockets of their own: neither the proxy that `wrangler dev` puts
// before a Worker, which loses requests under load, nor Miniflare's entry Worker (0.3 ms of processor time a request) is in between.
//
// node run.mjs, with WORKERD as JSON:
//   workers    [{config, script, settings}]: a wrangler configuration, a script in place of its `main`, variables in place of its own;
//              the first is the one that is asked, and the others keep its objects
//   port       of the first Worker; 0 is any free one
//   state      the directory of caches, KV stores and objects; without it they end with this process
//   registry   the directory where processes announce their objects to one another
//   assets     whether static files are served; in production that is another Worker's work, before this one
//   logs       whether the Workers' log lines are printed; printing slows a Worker down
//   measured   count the first Worker's operations on cache and KV store, and serve the memory of its instance
//   silentCache  its cache does not answer
//   losesReaders  it loses the requests that say so
//   distant    {millis, settings}: the two Workers are that far apart, the second has settings of its own, and questions are counted
//
// Prints the addresses once they listen: "Ready on", and where they apply "Handlers on", "Memory on", "Counts on".

import { once } from "node:events";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { connect } from "node:net";
import { join, relative } from "node:path";

import { Log, LogLevel, Miniflare, convertV4MiniflareOptions } from "miniflare";
import WebSocket from "ws";
import { configuration } from "./configuration.mjs";
import { commonDirectory, modulesOf } from "./modules.mjs";

const options = JSON.parse(process.env.WORKERD);
const { distant, measured } = options;
const HERE = import.meta.dirname;

const workers = await Promise.all(options.workers.map(worker));
const [first] = workers;
if (measured) precede(first, ["measured-memory.mjs", "counted-cache.mjs"]);
if (options.silentCache) precede(first, ["silent-cache.mjs"]);
if (options.losesReaders) precede(first, ["lost-readers.mjs"]);
if (distant) moveApart(...workers);
if (!options.registry) dropAbsentObjects();
first.unsafeDirectSockets = [{ host: "127.0.0.1", port: options.port ?? 0 }];

if (options.registry) for (const { name } of workers) await forgetTheDead(join(options.registry, name));

// Where it hangs, the log says how far it came.
console.log("Configured");
const inspectorPort = measured ? await freePort() : undefined;
const miniflare = new Miniflare(
  convertV4MiniflareOptions({
    inspectorPort,
    // What Cloudflare would say of a client is not asked for: a test has no network.
    cf: false,
    workers,
    log: new Log(LogLevel.WARN),
    logRequests: false,
    resourcePersistencePath: options.state ?? undefined,
    unsafeDevRegistryPath: options.registry ?? undefined,
    unsafeTriggerHandlers: true,
    handleStructuredLogs: options.logs ? ({ message }) => console.log(message) : () => {},
  }),
);
const entry = await miniflare.ready;
console.log(`Handlers on ${entry.origin}`);
if (measured) console.log(`Memory on ${await serveMemory()}`);
if (distant) console.log(`Counts on ${(await miniflare.unsafeGetDirectURL("distant-index")).origin}`);
console.log(`Ready on ${(await miniflare.unsafeGetDirectURL(first.name)).origin}`);

/** A Worker with what its configuration binds: variables, stores, objects, limiters, assets. */
async function worker({ config, script, settings }) {
  const { name, main, compatibilityDate, bound } = config
    ? await configuration(config)
    : { name: "worker", compatibilityDate: "2026-10-01", bound: {} };
  if (!options.assets) delete bound.assets;
  const modules = modulesOf(script ?? main);
  return {
    name,
    compatibilityDate,
    ...bound,
    rootPath: undefined,
    modulesRoot: commonDirectory(modules.map(({ path }) => path)),
    modules,
    bindings: { ...bound.bindings, ...settings },
  };
}

/** An object of a Worker that does not run here would keep workerd from starting. */
function dropAbsentObjects() {
  const names = workers.map(({ name }) => name);
  for (const { durableObjects = {} } of workers) {
    for (const [binding, { scriptName }] of Object.entries(durableObjects)) {
      if (scriptName && !names.includes(scriptName)) delete durableObjects[binding];
    }
  }
}

/** Puts modules of this folder before a Worker's own. */
function precede(worker, names) {
  const before = `./${relative(worker.modulesRoot, worker.modules[0].path)}`;
  for (const name of names) {
    const source = readFileSync(join(HERE, name), "utf8");
    const contents = source.replaceAll('"WORKER"', JSON.stringify(before));
    worker.modules.unshift({ type: "ESModule", path: join(worker.modulesRoot, name), contents });
  }
}

/** Puts a Worker between the first one and the one that keeps its index, and counts. */
function moveApart(first, index) {
  const className = "RegistryIndex";
  const objects = index.durableObjects.REGISTRY_INDEX;
  Object.assign(index.bindings, distant.settings);
  first.durableObjects.REGISTRY_INDEX = { className, scriptName: "distant-index", useSQLite: true };
  workers.push({
    name: "distant-index",
    compatibilityDate: first.compatibilityDate,
    unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }],
    modules: [{ type: "ESModule", path: join(HERE, "distant-index.mjs") }],
    modulesRoot: HERE,
    durableObjects: {
      REGISTRY_INDEX: { className, useSQLite: true },
      INDEX: { ...(typeof objects === "string" ? { className: objects } : objects), scriptName: index.name },
    },
    bindings: { MILLIS: String(distant.millis) },
  });
}

/** An entry of a process that was killed would keep its successor out of the registry for a minute and a half. */
async function forgetTheDead(entry) {
  if (!existsSync(entry)) return;
  const { debugPortAddress } = JSON.parse(readFileSync(entry, "utf8"));
  const [host, port] = debugPortAddress.split(":");
  const isAlive = await new Promise((answered) => {
    const socket = connect(Number(port), host);
    socket.on("connect", () => answered(true)).on("error", () => answered(false));
    socket.on("connect", () => socket.destroy());
  });
  if (!isAlive) rmSync(entry);
}

/** A port that no program listens on. */
async function freePort() {
  const server = await listening(createServer());
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return port;
}

/** A server that listens on a port of this machine. */
function listening(server) {
  return new Promise((listens) => server.listen(0, "127.0.0.1", () => listens(server)));
}

/** Serves the bytes of the first Worker's heap and buffers; with `?collected` without garbage. */
async function serveMemory() {
  const server = createServer(async ({ url }, response) => {
    const used = await memoryOf(first.name, url === "/?collected").catch((error) => ({ error: String(error) }));
    response.end(JSON.stringify(used));
  });
  return `http://127.0.0.1:${(await listening(server)).address().port}`;
}

async function memoryOf(name, isCollected) {
  const targets = await (await fetch(`http://127.0.0.1:${inspectorPort}/json`)).json();
  const target = targets.find(({ id }) => id === `core:user:${name}`);
  const socket = new WebSocket(target.webSocketDebuggerUrl);
  await once(socket, "open");
  const ask = (id, method) =>
    new Promise((answered) => {
      socket.on("message", (message) => {
        const answer = JSON.parse(message);
        if (answer.id === id) answered(answer.result);
      });
      socket.send(JSON.stringify({ id, method }));
    });
  try {
    // workerd collects garbage before a snapshot of the heap, and not when it is asked to.
    if (isCollected) await ask(1, "HeapProfiler.takeHeapSnapshot");
    const { usedSize, backingStorageSize } = await ask(2, "Runtime.getHeapUsage");
    return { bytes: usedSize + backingStorageSize };
  } finally {
    socket.close();
  }
}
