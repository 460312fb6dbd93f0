/** The domain behind a liable wallet: its file is asked for by this page, at the domain that the reader gives. */

import type { DomainFile, DomainWallet } from "../../pkg/liability.js";
import { exchange, ServiceError, unreachable, within } from "./api";
import { liability } from "./chain";
import type { Address } from "./documents";

/** What a domain says of a wallet. */
export interface DomainAnswer {
  domain: string;
  /** What it says of the wallet at this registry; undefined where it does not name it. */
  wallet: DomainWallet | undefined;
  /** Agents that it says are not its own. */
  notOurs: string[];
}

/**
 * Asks a domain about a wallet. Throws a `RegistryError` for a file that breaks a rule, a `ServiceError` where it does
 * not answer in time, and what `fetch` throws.
 */
export async function askDomain(domain: string, person: Address, signal: AbortSignal): Promise<DomainAnswer> {
  const [{ fetchDomain }, place] = await Promise.all([liability(), placeOf(person, signal)]);
  const limit = within(signal);
  const file: DomainFile = await fetchDomain(domain, { ...place, signal: limit }).catch((error: unknown) => {
    throw limit.aborted && !signal.aborted ? unreachable(`https://${domain}`) : error;
  });
  const own = file.wallets.filter(({ wallet }) => wallet.toLowerCase() === person.toLowerCase());
  // A wallet may be there twice while its signature is renewed.
  return { domain, wallet: own.find(({ problem }) => problem === undefined) ?? own[0], notOurs: file.notOurs };
}

/** The chain and the registry that this page's API answers for. */
async function placeOf(person: Address, signal: AbortSignal): Promise<{ chainId: string; registry: string }> {
  const { headers } = await exchange(`/api/v1/kya/${person}`, { signal });
  const [, chainId, registry] = /^eip155:(\d+):(0x[0-9a-fA-F]{40})$/.exec(headers.get("kya-registry") ?? "") ?? [];
  if (chainId === undefined || registry === undefined)
    throw new ServiceError("This API does not say which chain it answers for.", 501, "MISCONFIGURED", undefined);
  return { chainId, registry };
}
