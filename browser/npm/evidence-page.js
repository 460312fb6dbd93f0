// For pages and bundlers: `await init()` fetches the wasm from beside this file.
import { loaded } from "./error.js";
import init from "./evidence.js";

export * from "./evidence.js";

export default (source) => loaded(init(source));
