// Runs bundled Workers in workerd, without the proxy that `wrangler dev` puts before them, nor the Worker of the simulator's own that
// would hand on every request (some 0.3 ms of processor time each). Prints the first one's address when it listens.
//
// node workerd.mjs SCRIPT [WRANGLER_TOML] [SCRIPT WRANGLER_TOML], with their settings as JSON in WORKER_SETTINGS. The second one keeps
// the objects of the first.

import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";

import { Miniflare } from "miniflare";
import { unstable_getMiniflareWorkerOptions, unstable_readConfig } from "wrangler";

const settings = JSON.parse(process.env.WORKER_SETTINGS);
const [script, configuration, otherScript, otherConfiguration] = process.argv.slice(2);
const workers = [worker(script, configuration)];
if (otherScript) workers.push(worker(otherScript, otherConfiguration));
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
