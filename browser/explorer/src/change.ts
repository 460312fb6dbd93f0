/** What a change of a verdict is, in words. */

import type { Change } from "./documents";

/** Why the verdict is another one: what happened to the agent. */
export function reasonOf({ from, to }: Pick<Change, "from" | "to">): string {
  if (to === null) return "Registration undone by a reorganisation";
  if (from === null) return to.status === "Active" ? "Registered" : `Registered, then ${to.status}`;
  if (from.status === to.status && from.decision === to.decision) {
    return to.basis === "attested" ? "Liable wallet attested" : `Liability: ${from.basis}, now ${to.basis}`;
  }
  if (from.status === to.status) return to.decision === "provision" ? "Attested" : "Attestation lapsed";
  if (from.status === "Revoked" || from.status === "Terminated") return `${from.status}: undone by a reorganisation`;
  return to.status === "Active" ? "Active again" : to.status;
}
