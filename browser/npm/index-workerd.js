// For Workers, where wasm is compiled before the start: `await init()` takes the module from beside this file.
import init from "./registry.js";
import wasm from "./registry_bg.wasm";

export * from "./index.js";

export default (source) => init(source ?? { module_or_path: wasm });
