// For Node, where `fetch` reads no files: `await init()` reads the wasm from beside this file.
import { readFile } from "node:fs/promises";
import { loaded } from "./error.js";
import init from "./registry.js";

export * from "./index.js";

const start = async (source) =>
  init(source ?? { module_or_path: await readFile(new URL("./registry_bg.wasm", import.meta.url)) });

export default (source) => loaded(start(source));
