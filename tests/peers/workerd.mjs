// Runs bundled Workers in workerd, without the proxy that `wrangler dev` puts before them, nor the Worker of the simulator's own that
// would hand on every request (some 0.3 ms of processor time each). Prints the first one's address when it listens.
//
// node workerd.mjs SCRIPT [WRANGLER_TOML] [SCRIPT WRANGLER_TOML], with their settings as JSON in WORKER_SETTINGS. The second one keeps
// the objects of the first. With DISTANT_INDEX, {"millis":…,"settings":{…}}, they are that far apart, the second has settings of its
// own, and what the first one asks for is counted: questions to the object and operations on the cache.

import { readFileSync, readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";

import { Miniflare } from "miniflare";
import { unstable_getMiniflareWorkerOptions, unstable_readConfig } from "wrangler";

const settings = JSON.parse(process.env.WORKER_SETTINGS);
const [script, configuration, otherScript, otherConfiguration] = process.argv.slice(2);
const distant = JSON.parse(process.env.DISTANT_INDEX ?? "null");
const workers = [worker(script, configuration)];
if (otherScript) workers.push(worker(otherScript, otherConfiguration));
if (distant) moveApart(...workers);
// An object of a Worker that does not run here would keep workerd from starting.
const names = workers.map(({ name }) => name);
for (const { durableObjects } of workers) {
  for (const [binding, { scriptName }] of Object.entries(durableObjects ?? {})) {
    if (scriptName && !names.includes(scriptName)) delete durableObjects[binding];
  }
}
workers[0].unsafeDirectSockets = [{ host: "127.0.0.1", port: 0 }];

const miniflare = new Miniflare({
  // What Cloudflare would say of a client is not asked for: a test has no network.
  cf: false,
  workers,
  // In production log lines go elsewhere; printing them here would slow the Worker down.
  handleRuntimeStdio: (...streams) => streams.forEach((stream) => stream.resume()),
});
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

/** Puts a Worker between the first one and the one that keeps its index, and counts. */
function moveApart(first, index) {
  const className = "RegistryIndex";
  const objects = index.durableObjects.REGISTRY_INDEX;
  Object.assign(index.bindings, distant.settings);
  first.durableObjects.REGISTRY_INDEX = { className, scriptName: "distant-index", useSQLite: true };
  const main = first.modules[0];
  const counted = readFileSync(join(import.meta.dirname, "counted-cache.mjs"), "utf8");
  const contents = counted.replaceAll('"WORKER"', JSON.stringify(`./${basename(main.path)}`));
  first.modules.unshift({ type: "ESModule", path: join(first.modulesRoot, "counted-cache.mjs"), contents });
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
