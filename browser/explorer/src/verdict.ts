/** What a provider does about a wallet, by the API's answer (`docs/service.md`, section 4, `/kya/:wallet`). */

import type { Kya, KyaAgent, Timestamp } from "./documents";

export type Verdict = "provision" | "renew-expired" | "renew-suspended" | "deny";

/** How long an attestation is current, in milliseconds, unless the contract's owner has changed it (section 8). */
export const GRACE = 7 * 86_400_000;

/** The one of the four cases a KYA answer is. */
export function verdictOf({ isRegistered, isCompliant, agent }: Kya): Verdict {
  if (!isRegistered || agent === null) return "deny";
  if (isCompliant) return "provision";
  return agent.status === "Active" ? "renew-expired" : "renew-suspended";
}

/**
 * When the agent's attestation ends to be current. Undefined where the documented period contradicts what the API says of
 * it: the contract then has another one, which only the chain knows.
 */
export function attestationEnds(
  agent: Pick<KyaAgent, "lastAttestation">,
  isCurrent: boolean,
  now: number,
): Timestamp | undefined {
  const ends = Date.parse(agent.lastAttestation) + GRACE;
  // A margin for two clocks, and for an answer that was made a minute ago.
  const margin = 90_000;
  const contradicts = isCurrent ? ends < now - margin : ends > now + margin;
  return Number.isNaN(ends) || contradicts ? undefined : new Date(ends).toISOString();
}
