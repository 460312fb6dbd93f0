// For Node, where `fetch` reads no files: `await init()` reads the wasm from beside this file.
import { readFile } from "node:fs/promises";
import init from "./acceptance.js";
import { loaded } from "./error.js";

export * from "./liability.js";

const start = async (source) =>
  init(source ?? { module_or_path: await readFile(new URL("./acceptance_bg.wasm", import.meta.url)) });

export default (source) => loaded(start(source));
