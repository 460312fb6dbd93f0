// For Node, where `fetch` reads no files: `await init()` reads the wasm from beside this file.
import { readFile } from "node:fs/promises";
import init from "./decision.js";

export * from "./gate.js";

export default async function (source) {
  return init(source ?? { module_or_path: await readFile(new URL("./decision_bg.wasm", import.meta.url)) });
}
