import type { Integer, Kya } from "./registry.js";

/** A document that proves a verdict to whoever has a trusted hash of its block; its fields are those of `eth_getProof` (EIP-1186), and some. */
export interface Evidence {
  version: 1;
  wallet: string;
  registry: string;
  /** The word of whoever made the document: no header holds it. */
  chainId: Integer;
  blockHash: string;
  /** RLP. */
  header: string;
  accountProof: string[];
  balance: string;
  codeHash: string;
  nonce: string;
  storageHash: string;
  storageProof: { key: string; value: string; proof: string[] }[];
  /** The registry's code, by which it is known as this project's; absent for other code. */
  code?: string;
  layout: StorageLayout;
  /** At the block's time. */
  verdict: Kya;
}

/** Which storage slot of a registry is what, and the code it holds for: that with `codeHash`, or this project's. */
export interface StorageLayout {
  codeHash?: string;
  walletToAgent: string;
  attestationGracePeriod: { slot: string } | { seconds: number };
  agents: string;
  record: Record<
    "creator" | "haftungsperson" | "agentWallet" | "status" | "registeredAt" | "lastAttestation",
    { slot: number; offset: number; bytes: number }
  > & { operationalScope: number };
}

export interface EvidenceOptions {
  /** The hash of the document's block, from somebody you trust: everything is proved as far as this is. */
  blockHash: string;
  /** What the document has to be about, where you know it. */
  chainId?: Integer | string;
  registry?: string;
  wallet?: string;
  /** For a registry of other code: the layout that you vouch for. */
  layout?: StorageLayout | string;
}

export interface VerifiedEvidence {
  /** As found from the proofs and the block's time. */
  verdict: Kya;
  block: { number: Integer; timestamp: string; hash: string };
  registry: string;
  /** The document's word. */
  chainId: Integer;
}
