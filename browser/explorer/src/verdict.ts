/** What a provider does about a wallet, in words: the decision and the reasons are the API's (`docs/service.md`, section 10). */

import type { Basis, Decision, Kya, KyaAgent, Reason, Timestamp, UnknownBecause } from "./documents";

export type Verdict = "provision" | "renew-expired" | "renew-stopped" | "deny";

/** How long an attestation is current, in milliseconds, unless the contract's owner has changed it (section 8). */
export const GRACE = 7 * 86_400_000;

/** What to do, and why, by the kind of verdict. */
export const WORDS: Record<Verdict, { act: string; why: string }> = {
  provision: { act: "Provision", why: "A registered agent, Active, with a current attestation." },
  "renew-expired": {
    act: "Ask for renewal",
    why: "A registered agent whose attestation has expired. Serve it once it has attested again.",
  },
  "renew-stopped": {
    act: "Ask for renewal",
    why: "A registered agent that a regulator has suspended. It cannot attest until it is reactivated.",
  },
  deny: { act: "Deny", why: "No live agent has this wallet." },
};

/** A decision in words, where there is room for no more. */
export const DECISIONS: Record<Decision, string> = {
  provision: "Provision",
  request_renewal: "Ask for renewal",
  deny: "Deny",
};

/** Remarks, which decide nothing; the reasons that decide are told by the kind of verdict. */
export const REMARKS: Partial<Record<Reason, string>> = {
  REVOKED: "The agent was revoked, and the registry still names it.",
  TERMINATED: "The agent has terminated, and the registry still names it.",
  FORMER_AGENT_REVOKED: "An agent that had this wallet before was revoked.",
  FORMER_AGENT_TERMINATED: "An agent that had this wallet before has terminated.",
  ANCESTOR_NOT_ACTIVE: "An ancestor of the agent is not Active.",
};

/** What ties a liable wallet to an agent. */
export const BASES: Record<Basis, string> = {
  accepted: "Accepted: this wallet has signed that it is liable.",
  registered: "Registered: this wallet has registered the agent itself.",
  attested: "Attested: this wallet has attested for the agent in the last 90 days.",
  named: "Only named: this wallet has done nothing for the agent. A registration can name any wallet.",
  unknown: "Unknown: the registration names this wallet, and what it has done for the agent is not known here.",
};

/** Why something about the past is not known. */
export const UNKNOWN: Record<UnknownBecause, string> = {
  NOT_SCANNED: "the registry has not been read as a whole lately",
  SCAN_OUTDATED: "the registry has changed since it was read as a whole",
  INDEX_UNAVAILABLE: "the index did not answer in time",
  PAST_BLOCK: "it is only told at the newest block",
  TOO_MANY_AGENTS: "the registry has more agents than are read at once",
  UNREADABLE_AGENTS: "an agent's record cannot be read",
  NOT_PROVED: "evidence does not cover it",
};

/** The kind of verdict a KYA answer is. */
export function verdictOf({ decision, reasons }: Pick<Kya, "decision" | "reasons">): Verdict {
  if (decision !== "request_renewal") return decision;
  const isStopped = reasons.some((reason) => reason === "SUSPENDED" || reason === "REVOKED" || reason === "TERMINATED");
  return isStopped ? "renew-stopped" : "renew-expired";
}

/** What was before, in a sentence. */
export function pastOf({ registration, formerAgents, unknownBecause }: Kya): string {
  if (formerAgents === "unknown")
    return `Whether other agents had it before is unknown: ${unknownBecause ? UNKNOWN[unknownBecause] : "the API does not say why"}.`;
  if (formerAgents.length > 0) return "Other agents had it before, and have ended.";
  return registration === "never" ? "It was never registered." : "No other agent had it before.";
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
