// The package as npm has it: packed, and installed in a folder of its own.

import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

export const run = promisify(execFile);
export const PACKAGE = fileURLToPath(new URL("../../browser/pkg/", import.meta.url));

/**
 * Packs the package into a folder, for as long as `body` runs.
 *
 * @param {(directory: string, packed: { path: string, version: string, files: { path: string }[] }) => Promise<void>} body
 */
export async function packed(body) {
  const directory = await mkdtemp(join(tmpdir(), "npm-"));
  try {
    const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", directory], { cwd: PACKAGE });
    const [made] = JSON.parse(stdout);
    await body(directory, { ...made, path: join(directory, made.filename) });
  } finally {
    await rm(directory, { recursive: true });
  }
}

/** The same, with the package installed in the folder. */
export function installed(body) {
  return packed(async (directory, made) => {
    await run("npm", ["install", "--offline", "--no-audit", "--no-fund", made.path], { cwd: directory });
    await body(directory, made);
  });
}
