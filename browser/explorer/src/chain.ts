/** The core in this page: the same code that answers in the Worker, each of its modules loaded when it is first needed. */

import type * as Verifier from "../../pkg/evidence.js";
import type * as Core from "../../pkg/index.js";
import type * as Liability from "../../pkg/liability.js";
import type * as Local from "../../pkg/local.js";

import { ask } from "./api";
import type { Eip1193Provider, Stats } from "./documents";
import { settings } from "./settings";
import { wallets } from "./wallets";

/** The package, with its wasm. */
export const core: () => Promise<typeof Core> = once(async () => {
  const module = await import("../../pkg/index.js");
  await module.default({ module_or_path: address(await import("../../pkg/registry_bg.wasm")) });
  return module;
});

/** The package's verifier of evidence, with its wasm. */
export const verifier: () => Promise<typeof Verifier> = once(async () => {
  const module = await import("../../pkg/evidence.js");
  await module.default({ module_or_path: address(await import("../../pkg/evidence_bg.wasm")) });
  return module;
});

/** The package's private lookups, with their wasm. */
export const local: () => Promise<typeof Local> = once(async () => {
  const module = await import("../../pkg/local.js");
  await module.default({ module_or_path: address(await import("../../pkg/snapshot_bg.wasm")) });
  return module;
});

/** The package's checks of what liable wallets and domains say, with their wasm. */
export const liability: () => Promise<typeof Liability> = once(async () => {
  const module = await import("../../pkg/liability.js");
  await module.default({ module_or_path: address(await import("../../pkg/acceptance_bg.wasm")) });
  return module;
});

/** Loads at the first call, once for all callers. After a failure the next call retries. */
function once<A extends unknown[], T>(load: (...args: A) => Promise<T>): (...args: A) => Promise<T> {
  let loading: Promise<T> | undefined;
  return (...args) => {
    loading ??= load(...args).catch((error: unknown) => {
      loading = undefined;
      throw error;
    });
    return loading;
  };
}

/** Where a module is, as the bundler's loader has it. */
function address(module: { default: string }): URL {
  return new URL(module.default, import.meta.url);
}

/** A source of chain data other than the API. */
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

/** The registry's address as the API names it. */
export const registryOfApi: (signal: AbortSignal) => Promise<string> = once(
  async (signal) => (await ask<Stats>("/api/v1/stats", signal)).document.registryAddress,
);

/** The HTTP status of an error that the core throws: the one that the API would have answered with. */
export function statusOf(error: unknown): number {
  const status = error instanceof Error ? (error as { status?: unknown }).status : undefined;
  return typeof status === "number" ? status : 0;
}
