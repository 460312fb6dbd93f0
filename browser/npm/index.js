// For pages and bundlers: `await init()` fetches the wasm from beside this file.
export * from "./registry.js";
export { default } from "./registry.js";
export { RegistryError } from "./error.js";
