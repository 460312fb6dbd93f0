// Runs bundled Workers in workerd, without the proxy that `wrangler dev` puts before them, nor the Worker of the simulator's own that
// would hand on every request (some 0.3 ms of processor time each). Prints the first one's address when it listens.
//
// node workerd.mjs SCRIPT [WRANGLER_TOML] [SCRIPT WRANGLER_TOML], with their settings as JSON in WORKER_SETTINGS. The second one keeps
// the objects of the first. With DISTANT_INDEX, {"millis":…,"settings":{…}}, they are that far apart, the second has settings of its
// own, and questions to the object are counted. With MEASURED, the first one's operations on the cache are counted, and the memory of
// its instance is told. With SILENT_CACHE, its cache does not answer.

import { once } from "node:events";
import { readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { basename, dirname, join } from "node:path";

import { Miniflare } from "miniflare";
import WebSocket from "ws";
import { unstable_getMiniflareWorkerOptions, unstable_readConfig } from "wrangler";

const settings = JSON.parse(process.env.WORKER_SETTINGS);
const [script, configuration, otherScript, otherConfiguration] = process.argv.slice(2);
const distant = JSON.parse(process.env.DISTANT_INDEX ?? "null");
const isMeasured = "MEASURED" in process.env;
const workers = [worker(script, configuration)];
if (otherScript) workers.push(worker(otherScript, otherConfiguration));
// The last module is the Worker's.
if (isMeasured) precede(workers[0], ["measured-memory.mjs", "counted-cache.mjs"]);
if ("SILENT_CACHE" in process.env) precede(workers[0], ["silent-cache.mjs"]);
if (distant) moveApart(...workers);
// An object of a Worker that does not run here would keep workerd from starting.
const names = workers.map(({ name }) => name);
for (const { durableObjects } of workers) {
  for (const [binding, { scriptName }] of Object.entries(durableObjects ?? {})) {
    if (scriptName && !names.includes(scriptName)) delete durableObjects[binding];
  }
}
workers[0].unsafeDirectSockets = [{ host: "127.0.0.1", port: 0 }];

const inspectorPort = isMeasured ? await freePort() : undefined;
const miniflare = new Miniflare({
  inspectorPort,
  // What Cloudflare would say of a client is not asked for: a test has no network.
  cf: false,
  workers,
  // In production log lines go elsewhere; printing them here would slow the Worker down.
  handleRuntimeStdio: (...streams) => streams.forEach((stream) => stream.resume()),
});
if (isMeasured) console.log(`Memory on ${await serveMemory()}`);
if (distant) console.log(`Counts on ${(await miniflare.unsafeGetDirectURL("distant-index")).origin}`);
console.log(`Ready on ${(await miniflare.unsafeGetDirectURL()).origin}`);

/** A bundled Worker with what its own configuration binds: stores, objects, limits. Its assets are served by another Worker before it. */
function worker(script, configuration) {
  const directory = dirname(script);
  const configured = configuration ? unstable_getMiniflareWorkerOptions(configuration).workerOptions : {};
  delete configured.assets;
  return {
    name: configuration ? unstable_readConfig({ config: configuration }).name : "worker",
    compatibilityDate: "2026-04-01",
    ...configured,
    rootPath: directory,
    modulesRoot: directory,
    modules: [
      { type: "ESModule", path: script },
      ...readdirSync(directory)
        .filter((name) => name.endsWith(".wasm"))
        .map((name) => ({ type: "CompiledWasm", path: join(directory, name) })),
    ],
    bindings: { ...configured.bindings, ...settings },
  };
}

/** Puts modules of this folder before a Worker's own. */
function precede(worker, names) {
  const main = worker.modules[0];
  for (const name of names) {
    const source = readFileSync(join(import.meta.dirname, name), "utf8");
    const contents = source.replaceAll('"WORKER"', JSON.stringify(`./${basename(main.path)}`));
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
    compatibilityDate: "2026-04-01",
    unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }],
    modules: [{ type: "ESModule", path: join(import.meta.dirname, "distant-index.mjs") }],
    modulesRoot: import.meta.dirname,
    durableObjects: {
      REGISTRY_INDEX: { className, useSQLite: true },
      INDEX: { ...(typeof objects === "string" ? { className: objects } : objects), scriptName: index.name },
    },
    bindings: { MILLIS: String(distant.millis) },
  });
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
    const used = await memoryOf(names[0], url === "/?collected").catch((error) => ({ error: String(error) }));
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
