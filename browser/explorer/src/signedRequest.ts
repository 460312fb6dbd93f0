/** Asking a service that a gate guards: the visitor's wallet signs the request (ERC-8128, `docs/gate.md`). */

import { signRequest } from "../../pkg/sign.js";
import { within } from "./api";
import type { Address, Eip1193Provider } from "./documents";
import { isObject } from "./json";
import { fromWallet, Stopped } from "./wallets";

/** What a service answered. */
export interface GuardedAnswer {
  status: number;
  /** The gate's stable code of a refusal, such as `kya_not_allowed`. */
  reason: string | undefined;
  /** The gate's words for it. */
  detail: string | undefined;
  /** What the registry says about the wallet, where that is the reason. */
  decision: string | undefined;
  /** Where an agent goes on, as the service has it: to register, or to renew. */
  link: URL | undefined;
  /** What the service itself said. */
  text: string;
}

/** Has the wallet sign a GET of this address, and sends it once. */
export async function askAsAgent(
  signal: AbortSignal,
  provider: Eip1193Provider,
  account: Address,
  url: string,
): Promise<GuardedAnswer> {
  const chainId = BigInt(String(await fromWallet(provider, "eth_chainId")));
  const signMessage = async (message: Uint8Array): Promise<string> => {
    const hex = Array.from(message, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return String(await fromWallet(provider, "personal_sign", [`0x${hex}`, account]));
  };
  const signed = await signRequest(new Request(url), { address: account, chainId, signMessage });
  const sent = fetch(signed, { signal: within(signal), cache: "no-store" });
  const [answer, text] = await sent
    .then(async (response) => [response, await response.text()] as const)
    .catch(() => {
      if (signal.aborted) throw signal.reason;
      throw new Stopped("The service does not answer, or does not let other sites ask it (CORS).");
    });
  const problem = answer.ok ? {} : problemOf(text);
  const word = (name: string): string | undefined =>
    typeof problem[name] === "string" ? (problem[name] as string) : undefined;
  return {
    status: answer.status,
    reason: word("reason"),
    detail: word("detail"),
    decision: word("decision"),
    link: webAddress(word("register") ?? word("renew") ?? ""),
    text,
  };
}

/** A whole address of the web; nothing for other text. */
export function webAddress(text: string): URL | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url && /^https?:$/.test(url.protocol) ? url : undefined;
}

/** A problem document (RFC 9457); empty for other text. */
function problemOf(text: string): Record<string, unknown> {
  try {
    const document: unknown = JSON.parse(text);
    return isObject(document) ? document : {};
  } catch {
    return {};
  }
}
