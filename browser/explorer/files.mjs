// File handling of the page's build.

import { cpSync, readdirSync, existsSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";

/**
 * The packages of `node_modules` that are in a bundle.
 *
 * @param {{ inputs: Record<string, unknown> }} metafile esbuild's
 * @returns {string[]} their names, sorted
 */
export function packagesOf(metafile) {
  const names = Object.keys(metafile.inputs).map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]);
  return [...new Set(names)].filter((name) => name !== undefined).sort();
}

/**
 * Replaces the files of a directory with those of another, one by one: a running Worker watches the
 * directory. New assets arrive before the page that names them, and old ones go after it.
 *
 * @param {string} from the directory with the new files
 * @param {string} to the directory to change
 */
export function replaceFiles(from, to) {
  for (const part of ["assets", "."]) cpSync(join(from, part), join(to, part), { recursive: true });
  for (const name of readdirSync(to, { recursive: true, encoding: "utf8" })) {
    const file = join(to, name);
    if (statSync(file).isFile() && !existsSync(join(from, name))) rmSync(file);
  }
}
