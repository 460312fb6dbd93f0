import type { Evidence, Integer, Kya, StorageLayout } from "./registry.js";

export type { Evidence, StorageLayout } from "./registry.js";

export interface EvidenceOptions {
  /** The hash of the document's block, from a source you trust. All that the document proves rests on it. */
  blockHash: string;
  /** The chain that the document has to be of; any if not given. */
  chainId?: Integer | string;
  /** The registry that the document has to be of; any if not given. */
  registry?: string;
  /** The forwarder that the registry's code has to trust: by it others than a transaction's sender can be an agent's creator. */
  forwarder?: string;
  /** The wallet that the document has to be about; any if not given. */
  wallet?: string;
  /** The storage layout of a registry with other code than this project's. You vouch for it. */
  layout?: StorageLayout | string;
}

export interface VerifiedEvidence {
  /** As found from the proofs and the block's time. */
  verdict: Kya;
  block: { number: Integer; timestamp: string; hash: string };
  registry: string;
  /** As the document says; no header holds it. */
  chainId: Integer;
  /** The one that the registry's proved code trusts; absent for code that is not this project's. */
  forwarder?: string;
}
