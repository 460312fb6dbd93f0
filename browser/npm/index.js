// For pages and bundlers: `await init()` fetches the wasm from beside this file.
import { loaded } from "./error.js";
import init from "./registry.js";

export * from "./registry.js";
export { RegistryError } from "./error.js";

export default (source) => loaded(init(source));
