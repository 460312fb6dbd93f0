// What wrangler makes of a configuration, for Miniflare. It is kept for the Workers that are started later: to import wrangler takes a
// second of the processor's time, as long as all else that starts a Worker.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const MODULES = join(import.meta.dirname, "../../node_modules");
const KEPT = join(MODULES, ".cache/workerd");

/** The Worker's name, its main module, its compatibility date, and Miniflare's options of what it binds. */
export async function configuration(path) {
  const { version } = JSON.parse(readFileSync(join(MODULES, "wrangler/package.json"), "utf8"));
  const made = JSON.stringify([resolve(path), readFileSync(path, "utf8"), version]);
  const kept = join(KEPT, `${createHash("sha256").update(made).digest("hex")}.json`);
  try {
    return JSON.parse(readFileSync(kept, "utf8"));
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
  }
  const { unstable_getMiniflareWorkerOptions, unstable_readConfig } = await import("wrangler");
  const { name, main, compatibility_date } = unstable_readConfig({ config: path }, { hideWarnings: true });
  const text = JSON.stringify({
    name,
    main,
    compatibilityDate: compatibility_date,
    bound: unstable_getMiniflareWorkerOptions(path).workerOptions,
  });
  mkdirSync(KEPT, { recursive: true });
  // Other processes read it meanwhile.
  writeFileSync(`${kept}.${process.pid}`, text);
  renameSync(`${kept}.${process.pid}`, kept);
  return JSON.parse(text);
}
