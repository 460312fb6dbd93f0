import type { Acceptance, DomainFile, Place, RegisteredAgent } from "./acceptance.js";
import type { Integer } from "./registry.js";

export { checkAcceptance, default, initSync, readDomainFile } from "./acceptance.js";
export type { Acceptance, CheckedAcceptance, DomainFile, DomainWallet, Place, RegisteredAgent } from "./acceptance.js";
export { RegistryError } from "./index.js";

/** What is signed for, and how long it holds. */
export interface Terms {
  chainId: Integer | string;
  registry: string;
  /** Unix seconds; now if not given. */
  notBefore?: number;
  /** Unix seconds; `days` after `notBefore` if not given, and at most 366 days after it. */
  notAfter?: number;
  /** 30 if not given. */
  days?: number;
}

/** EIP-712 typed data, as `eth_signTypedData_v4` and the libraries' `signTypedData` take it. */
export interface TypedData {
  types: Record<string, { name: string; type: string }[]>;
  primaryType: string;
  domain: { name: string; version: string; chainId: number; verifyingContract: string };
  message: Record<string, string | number>;
}

/** Signs typed data with the liable wallet, and gives the signature in hexadecimal digits. */
export type SignTypedData = (data: TypedData) => Promise<string>;

/** The acceptance of an agent. Show the record first: the signature says that this wallet is liable for it. */
export function signAcceptance(
  agent: RegisteredAgent,
  terms: Terms & { termsHash?: string },
  sign: SignTypedData,
): Promise<Acceptance>;

/** The entry of a wallet in its domain's file; `legalName` and `lei` can be added to it. */
export function signDomain(
  wallet: string,
  domain: string,
  terms: Terms,
  sign: SignTypedData,
): Promise<{ chainId: number; registry: string; wallet: string; notBefore: number; notAfter: number; signature: string }>;

/** The value of the header `Liability-Acceptance`, for requests to a gate and to `/api/v1/kya/:wallet`. */
export function acceptanceHeader(acceptance: Acceptance): string;

/**
 * Fetches `https://DOMAIN/.well-known/kya-liable.json`, without following redirects, and checks what it says of this registry.
 *
 * @throws RegistryError INVALID_PARAMETER for a domain or a member of the file that breaks its rule, DOMAIN_UNAVAILABLE with the
 * status for an answer that is no file; what `fetch` throws where nothing answers
 */
export function fetchDomain(
  domain: string,
  options: Place & { fetch?: typeof fetch; signal?: AbortSignal },
): Promise<DomainFile>;
