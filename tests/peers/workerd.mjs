// Runs a bundled Worker in workerd, without the proxy that `wrangler dev` puts before it, nor the Worker of the simulator's own that
// would hand on every request (some 0.3 ms of processor time each). Prints its address when it listens.
//
// node workerd.mjs SCRIPT [WRANGLER_TOML], with the Worker's settings as JSON in WORKER_SETTINGS

import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";

import { Miniflare } from "miniflare";
import { unstable_getMiniflareWorkerOptions } from "wrangler";

const [script, configuration] = process.argv.slice(2);
const directory = dirname(script);

/** What a Worker's own configuration binds: stores, objects, limits. Its assets are served by another Worker before it. */
const configured = configuration ? unstable_getMiniflareWorkerOptions(configuration).workerOptions : {};
delete configured.assets;

const miniflare = new Miniflare({
  compatibilityDate: "2026-04-01",
  ...configured,
  unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }],
  // What Cloudflare would say of a client is not asked for: a test has no network.
  cf: false,
  rootPath: directory,
  modulesRoot: directory,
  modules: [
    { type: "ESModule", path: script },
    ...readdirSync(directory)
      .filter((name) => name.endsWith(".wasm"))
      .map((name) => ({ type: "CompiledWasm", path: join(directory, name) })),
  ],
  bindings: { ...configured.bindings, ...JSON.parse(process.env.WORKER_SETTINGS) },
  // In production log lines go elsewhere; printing them here would slow the Worker down.
  handleRuntimeStdio: (...streams) => streams.forEach((stream) => stream.resume()),
});
console.log(`Ready on ${(await miniflare.unsafeGetDirectURL()).origin}`);
