/** The visitor's wallets: those that announce themselves (EIP-6963), and `window.ethereum`. */

import type { Address, Eip1193Provider } from "./documents";
import { isObject } from "./json";

export interface Wallet {
  /** As the wallet calls itself; not to be believed. */
  name: string;
  provider: Eip1193Provider;
}

const announced = new Map<unknown, Wallet>();

/** Begins to listen for wallets; they answer at once, or when they are ready. */
export function listenForWallets(): void {
  window.addEventListener("eip6963:announceProvider", (event) => {
    const detail: unknown = (event as CustomEvent<unknown>).detail;
    if (!isObject(detail) || !isObject(detail["info"]) || !isProvider(detail["provider"])) return;
    const { uuid, name } = detail["info"];
    announced.set(uuid, { name: String(name), provider: detail["provider"] });
  });
  window.dispatchEvent(new Event("eip6963:requestProvider"));
}

/** All wallets known by now. */
export function wallets(): Wallet[] {
  const known = [...announced.values()];
  const injected = (window as { ethereum?: unknown }).ethereum;
  if (isProvider(injected) && known.every(({ provider }) => provider !== injected)) {
    known.push({ name: "Browser wallet", provider: injected });
  }
  return known;
}

/** What needs the wallet stopped; the message says why. */
export class Stopped extends Error {}

/** The wallet's first account, once its owner allows it. */
export async function connect(provider: Eip1193Provider): Promise<Address> {
  const accounts = await fromWallet(provider, "eth_requestAccounts");
  const first: unknown = Array.isArray(accounts) ? accounts[0] : undefined;
  if (typeof first !== "string") throw new Stopped("The wallet has no account for this page.");
  return first;
}

/** Asks a wallet; its refusal in words is a {@link Stopped}. */
export async function fromWallet(provider: Eip1193Provider, method: string, params: unknown[] = []): Promise<unknown> {
  try {
    return await provider.request({ method, params });
  } catch (error) {
    throw new Stopped(refusal(error));
  }
}

/** Why a wallet refused, in words. Its errors are objects of any make with a `code` (EIP-1193, JSON-RPC). */
export function refusal(error: unknown): string {
  const { code, message } =
    isObject(error) || error instanceof Error ? (error as { code?: unknown; message?: unknown }) : {};
  if (code === 4001 || code === "ACTION_REJECTED") return "You declined in the wallet. Nothing was sent.";
  if (code === 4100) return "The wallet does not allow this page to use that account.";
  if (code === 4200 || code === -32601) return "The wallet cannot do this.";
  if (code === 4900 || code === 4901) return "The wallet is not connected to its network.";
  if (code === -32002) return "The wallet is already asking you something: look there.";
  return `The wallet says: ${typeof message === "string" && message !== "" ? message : "no reason"}`;
}

function isProvider(value: unknown): value is Eip1193Provider {
  return (
    (isObject(value) || typeof value === "function") && typeof (value as { request?: unknown }).request === "function"
  );
}
