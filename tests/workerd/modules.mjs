// The modules of a Worker that is run as it lies in its folder.

import { readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

/** A module and all that it imports by a relative path. */
export function modulesOf(main) {
  const modules = new Map();
  const waiting = [main];
  for (let path = waiting.pop(); path; path = waiting.pop()) {
    if (modules.has(path)) continue;
    const isWasm = path.endsWith(".wasm");
    modules.set(path, { type: isWasm ? "CompiledWasm" : "ESModule", path });
    if (isWasm) continue;
    const imports = readFileSync(path, "utf8").matchAll(/\b(?:from|import)\s*["'](\.{1,2}\/[^"']+)["']/g);
    waiting.push(...[...imports].map(([, other]) => join(dirname(path), other)));
  }
  return [...modules.values()];
}

export function commonDirectory(paths) {
  let directory = dirname(paths[0]);
  while (paths.some((path) => relative(directory, path).startsWith(".."))) directory = dirname(directory);
  return directory;
}
