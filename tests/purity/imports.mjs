// Proves that the core is pure: a module that drives all of it imports nothing. No clock, no randomness, no
// host.
//
//     node tests/purity/imports.mjs core_probe.wasm

import { readFileSync } from "node:fs";

/** The probe's exports, each of which drives a part of the core. Without them the linker would drop the core. */
const EXPORTS = ["read_api", "forward", "window"];

const bytes = readFileSync(process.argv[2]);
const module = new WebAssembly.Module(bytes);
const exported = WebAssembly.Module.exports(module).map(({ name }) => name);
const missing = EXPORTS.filter((name) => !exported.includes(name));
if (missing.length > 0) throw new Error(`the probe does not export ${missing}: ${exported}`);
const imports = WebAssembly.Module.imports(module).map(({ module, name }) => `${module}.${name}`);
if (imports.length > 0) throw new Error(`registry-core imports ${imports}`);
console.log(`registry-core: ${Math.floor(bytes.length / 1024)} KiB of wasm, no imports`);
