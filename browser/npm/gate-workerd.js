// For Workers, where wasm is compiled before the start: `await init()` takes the module from beside this file.
import init from "./decision.js";
import wasm from "./decision_bg.wasm";

export * from "./gate.js";

export default (source) => init(source ?? { module_or_path: wasm });
