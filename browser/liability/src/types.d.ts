import type { Integer } from "./registry.js";

/** The record that an acceptance is of: the `agent` of a verdict or of `/api/v1/agent/:id`. */
export interface RegisteredAgent {
  agentId: Integer | string;
  creator: string;
  agentWallet: string;
  haftungsperson: string;
  operationalScope: string;
  /** ISO 8601. */
  registeredAt: string;
}

/** A liable wallet's acceptance of one registration. */
export interface Acceptance {
  chainId: number;
  registry: string;
  /** In decimal digits. */
  agentId: string;
  creator: string;
  agentWallet: string;
  haftungsperson: string;
  /** Unix seconds, as all times here. */
  registeredAt: number;
  /** The Keccak-256 of terms that both sides hold, or zero. */
  termsHash: string;
  notBefore: number;
  /** At most 366 days after `notBefore`. */
  notAfter: number;
  signature: string;
}

/** Where and when a signed document has to hold. */
export interface Place {
  chainId: Integer | string;
  registry: string;
  /** Unix seconds; the clock's if not given. */
  now?: number;
}

export interface CheckedAcceptance {
  /** The EIP-712 digest, which `withdrawn` of a domain's file names. Absent where the acceptance cannot be read. */
  digest?: string;
  /** What keeps it from holding: a member, `header`, `signature` or `time`. Absent where it holds. */
  problem?: string;
}

/** A wallet that a domain names. */
export interface DomainWallet {
  wallet: string;
  notBefore: number;
  notAfter: number;
  /** The domain's claim, unchecked. */
  legalName?: string;
  /** The domain's claim, too. */
  lei?: string;
  /** What keeps the binding from holding: `signature`, `notAfter` or `time`. Absent where it holds. */
  problem?: string;
}

/** What a domain's file says of one registry. */
export interface DomainFile {
  domain: string;
  wallets: DomainWallet[];
  acceptances: Acceptance[];
  /** Digests of acceptances that hold no longer. */
  withdrawn: string[];
  /** Ids of agents that name one of the wallets and are not the domain's. */
  notOurs: string[];
}
