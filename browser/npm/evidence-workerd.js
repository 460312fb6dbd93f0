// For Workers, where wasm is compiled before the start: `await init()` takes the module from beside this file.
import init from "./evidence.js";
import wasm from "./evidence_bg.wasm";

export * from "./evidence.js";

export default (source) => init(source ?? { module_or_path: wasm });
