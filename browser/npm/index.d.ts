// The generated declarations speak of Symbol.dispose, which not every project's libraries know.
/// <reference lib="esnext.disposable" />

export * from "./registry.js";
export { default } from "./registry.js";

/** An error with the code and the HTTP status that the API or the relayer would have answered. */
export class RegistryError extends Error {
  readonly name: "RegistryError";
  /** Such as `AGENT_NOT_FOUND`: stable, and made for programs. */
  readonly code: string;
  /** Such as 404. */
  readonly status: number;
  /** What the wallet threw, where a wallet's error is the reason. */
  readonly cause?: unknown;
}
