/** A gasless registration, step by step: what is asked of relayer, wallet and chain, in that order. */

import { ask } from "./api";
import { core } from "./chain";
import type { Address, AgentDetail, Eip1193Provider, Integer, Registration } from "./documents";
import { Relayer } from "./relayer";
import { settle, Unsettled } from "./settle";
import { connect, fromWallet, Stopped } from "./wallets";

/** How long a signature is good for. */
const VALID_SECONDS = 3_600;
/** The polling interval for something that takes blocks, in milliseconds. */
const POLL_MILLISECONDS = 2_000;
/** How long the API may take to see the new agent. */
const PATIENCE_MILLISECONDS = 90_000;

/** A registration without text costs 300,000 gas; each word of text is a storage slot more. */
const GAS_BASE = 420_000;
const GAS_PER_WORD = 26_000;

/** What happens, in order. */
export const STEPS = ["Ask the relayer", "Sign in the wallet", "Relay to the chain", "See it in the registry"] as const;

/**
 * Registers an agent with `account` as its creator. Tells `at` which step begins. Gives the new id, and whether the API
 * has shown it within a minute and a half. Rejects once the signal is aborted, and with `Unsettled` where it was sent and may have
 * been carried out.
 */
export async function register(
  signal: AbortSignal,
  relayerUrl: string,
  provider: Eip1193Provider,
  account: Address,
  registration: Registration,
  at: (step: number, detail?: string) => void,
): Promise<{ id: Integer; isSeen: boolean; transaction: string }> {
  at(0);
  const relayer = new Relayer(relayerUrl, signal);
  const package_ = core();
  const [domain, terms, nonce] = await Promise.all([relayer.domain(), relayer.terms(), relayer.nextNonce(account)]);
  const { registerAgent, forwardRequest, checkRequest } = await package_;
  await onChain(provider, domain.chainId);
  // A connected wallet is not asked again; it may have changed its account meanwhile.
  if ((await connect(provider)).toLowerCase() !== account.toLowerCase()) {
    throw new Stopped("The wallet has turned to another account. Connect it again.");
  }

  const gas = gasFor(registration.operationalScope);
  if (BigInt(gas) > BigInt(terms.maxGas))
    throw new Stopped("The operational scope is too long for this relayer. Shorten it.");
  const request = {
    from: account,
    to: terms.registry,
    value: "0",
    gas: String(gas),
    nonce: String(nonce),
    deadline: String(Math.floor(Date.now() / 1_000) + VALID_SECONDS),
    data: registerAgent(registration),
  };
  const forwarder = { chainId: domain.chainId, forwarder: domain.verifyingContract };
  const typedData = forwardRequest(request, forwarder);

  at(1);
  const signature = await fromWallet(provider, "eth_signTypedData_v4", [account, JSON.stringify(typedData)]);
  const signed = { request, signature: String(signature) };
  // A request that the relayer refuses counts against the visitor's rate limit: it is refused here first.
  const id = checkRequest(signed, { ...forwarder, registry: terms.registry, maxGas: terms.maxGas });

  at(2, id);
  const { agentId, txHash } = await settle(relayer, id, signed, (milliseconds) => pause(signal, milliseconds));
  if (agentId === undefined) throw new Unsettled(id);

  at(3);
  return { id: agentId, isSeen: await seen(signal, agentId), transaction: txHash ?? "" };
}

async function onChain(provider: Eip1193Provider, chainId: Integer): Promise<void> {
  const wanted = `0x${BigInt(chainId).toString(16)}`;
  const current = async (): Promise<boolean> =>
    BigInt(String(await fromWallet(provider, "eth_chainId"))) === BigInt(chainId);
  if (await current()) return;
  await fromWallet(provider, "wallet_switchEthereumChain", [{ chainId: wanted }]).catch(() => undefined);
  if (!(await current())) {
    throw new Stopped(
      `The wallet is on another chain. The relayer works on chain ${chainId}: switch the wallet to it, then try again.`,
    );
  }
}

/** Whether the API shows the agent in time. Its answer "not found" is never kept, so asking again helps. */
async function seen(signal: AbortSignal, id: Integer): Promise<boolean> {
  const until = Date.now() + PATIENCE_MILLISECONDS;
  while (Date.now() < until) {
    try {
      await ask<AgentDetail>(`/api/v1/agent/${id}`, signal);
      return true;
    } catch (error) {
      if (signal.aborted) throw error;
    }
    await pause(signal, POLL_MILLISECONDS);
  }
  return false;
}

/** Gas for a registration with this text as its scope. */
export function gasFor(text: string): number {
  const words = Math.ceil(new TextEncoder().encode(text).length / 32);
  return GAS_BASE + GAS_PER_WORD * words;
}

/** Resolves after so many milliseconds; rejects once the signal is aborted. */
function pause(signal: AbortSignal, milliseconds: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(signal.reason);
    if (signal.aborted) return stop();
    signal.addEventListener("abort", stop, { once: true });
    setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
  });
}
