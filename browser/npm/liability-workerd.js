// For Workers, where wasm is compiled before the start: `await init()` takes the module from beside this file.
import init from "./acceptance.js";
import wasm from "./acceptance_bg.wasm";

export * from "./liability.js";

export default (source) => init(source ?? { module_or_path: wasm });
