// A program for Node, which has no types of the DOM library.

import init, { Registry, RegistryError } from "../../browser/pkg/index.js";
import initEvidence from "../../browser/pkg/evidence.js";
import initGate, { LocalGate } from "../../browser/pkg/gate.js";
import initLiability, { fetchDomain } from "../../browser/pkg/liability.js";
import initLocal, { FolderStore, LocalKya } from "../../browser/pkg/local.js";
import { signRequest } from "../../browser/pkg/sign.js";

await init({ module_or_path: new Uint8Array() });
await Promise.all([initEvidence(), initGate(new URL("file:///a.wasm")), initLiability(), initLocal("/a.wasm")]);
const local = new LocalKya({ api: "https://a.example", store: new FolderStore("a"), signal: AbortSignal.timeout(1), timeoutSeconds: 1 });
export const decision: "provision" | "request_renewal" | "deny" = (await local.kya("0x")).decision;
export const used = [Registry, RegistryError, LocalGate, fetchDomain, signRequest];
