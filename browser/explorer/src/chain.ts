/** The core in this page: the same code that answers in the Worker, loaded when it is first needed. */

import type * as Core from "../../pkg/index.js";

import { ask } from "./api";
import type { Eip1193Provider, Stats } from "./documents";
import { settings } from "./settings";
import { wallets } from "./wallets";

let loading: Promise<typeof Core> | undefined;

/** The package, with its wasm. */
export function core(): Promise<typeof Core> {
  loading ??= load().catch((error: unknown) => {
    // The next one who asks may have better luck.
    loading = undefined;
    throw error;
  });
  return loading;
}

async function load(): Promise<typeof Core> {
  const module = await import("../../pkg/index.js");
  // The bundler's loader makes this the address of the file; its types speak of what is inside.
  const file = (await import("../../pkg/registry_bg.wasm")) as unknown as { default: string };
  await module.default({ module_or_path: new URL(file.default, import.meta.url) });
  return module;
}

/** Somebody who can be asked about the chain instead of the API. */
export interface Source {
  name: string;
  rpc: string | Eip1193Provider;
}

/** The visitor's own sources: the RPC URL of the settings first, then wallets. */
export function sources(): Source[] {
  const { rpcUrl } = settings();
  const own = rpcUrl === "" ? [] : [{ name: new URL(rpcUrl).origin, rpc: rpcUrl }];
  return [...own, ...wallets().map(({ name, provider }) => ({ name, rpc: provider }))];
}

let named: Promise<string> | undefined;

/** The registry's address as the API names it. */
export function registryOfApi(signal: AbortSignal): Promise<string> {
  named ??= ask<Stats>("/api/v1/stats", signal)
    .then(({ document }) => document.registryAddress)
    .catch((error: unknown) => {
      named = undefined;
      throw error;
    });
  return named;
}

/** What the core throws: an error with the status and code that the API would have answered with. */
export function statusOf(error: unknown): number {
  const status = error instanceof Error ? (error as { status?: unknown }).status : undefined;
  return typeof status === "number" ? status : 0;
}
