// For Workers, where wasm is compiled before the start: `await init()` takes the module from beside this file.
import init from "./snapshot.js";
import wasm from "./snapshot_bg.wasm";

export * from "./local.js";

export default (source) => init(source ?? { module_or_path: wasm });
