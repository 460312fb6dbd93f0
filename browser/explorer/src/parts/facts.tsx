/** Terms and what they say: as a list, or as a few figures in a row. */

import type { ComponentChildren } from "preact";

import type { Address, Liability, Timestamp } from "../documents";
import { BASES } from "../verdict";
import { Copyable, PersonLink } from "./address";
import { Ago, Time } from "./moment";

/** A list of `Fact`s. */
export function Facts({ children }: { children: ComponentChildren }) {
  return <dl class="facts">{children}</dl>;
}

/** A few `Fact`s that are figures, in a row. */
export function Figures({ children }: { children: ComponentChildren }) {
  return <dl class="figures">{children}</dl>;
}

export function Fact({ term, children }: { term: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{term}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** When, and how long ago. */
export function TimeFact({ term, at }: { term: string; at: Timestamp }) {
  return (
    <Fact term={term}>
      <Time at={at} /> <Ago since={at} />
    </Fact>
  );
}

/** The wallets of an agent that its liable person matters to. */
type Named = { haftungsperson: Address; agentWallet: Address };

/** Who is liable for an agent, and what ties that wallet to it. */
export function LiableFact({ liability, agent }: { liability: Liability | undefined; agent: Named }) {
  // An API of an earlier version does not say.
  const { wallet, basis, attestedAt }: Liability = liability ?? { wallet: agent.haftungsperson, basis: "unknown" };
  return (
    <Fact term="Liable (Haftungsperson)">
      <Copyable text={wallet}>
        <PersonLink address={wallet} />
      </Copyable>
      <p class="basis" data-basis={basis}>
        {BASES[basis]}
        {attestedAt !== undefined && (
          <>
            {" "}
            Last <Time at={attestedAt} />.
          </>
        )}
        {wallet === agent.agentWallet && " The agent names itself: no other person stands behind it."}
      </p>
    </Fact>
  );
}
