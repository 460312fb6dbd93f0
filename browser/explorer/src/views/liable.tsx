/** A person, and what they are liable for: the number of agents, the next attestations to lapse, and the agents one by one. */

import { STATUSES, type Basis, type Liable } from "../documents";
import { whole } from "../format";
import { listHref } from "../listing";
import { Hex } from "../parts/address";
import { AgentTable, COLUMNS } from "../parts/agentTable";
import { Answered } from "../parts/answer";
import { Bars } from "../parts/bars";
import { DomainBinding } from "../parts/domainBinding";
import { Fact, Figures } from "../parts/facts";
import { Heading } from "../parts/heading";
import { Indexed } from "../parts/indexed";
import { CursorPager } from "../parts/pager";
import { Skeleton } from "../parts/skeleton";
import { hrefTo, type Route } from "../router";

const { agent, status, compliant, basis, lapses, wallet, scope } = COLUMNS;
/** What a list of agents knows of a liable wallet, the strongest first. */
const BASES_OF_LISTS = ["registered", "attested", "named", "unknown"] as const satisfies Basis[];

export function LiableView({ route: { segments, query } }: { route: Route }) {
  const person = segments[1] ?? "";
  const cursor = query.get("cursor") ?? "";
  const only = query.get("basis") ?? "";
  const asked = new URLSearchParams(Object.entries({ basis: only, cursor }).filter(([, value]) => value !== ""));
  const path = `/api/v1/liable/${encodeURIComponent(person)}`;
  const isAddress = /^0x[0-9a-fA-F]{40}$/.test(person);
  return (
    <>
      <Heading title={isAddress ? `Liable person ${person.slice(0, 6)}…${person.slice(-4)}` : "Liable person"}>
        <span class="kicker">Liable person </span>
        <span class="heading-hex">
          <Hex text={person} />
        </span>
      </Heading>
      <Answered<[Liable]>
        paths={[asked.size === 0 ? path : `${path}?${asked}`]}
        verifiable={false}
        placeholder={<Skeleton lines={16} />}
      >
        {([{ document }]) => (
          <>
            {BigInt(document.total) === 0n ? (
              <p class="empty">No agent names this wallet as the person liable for it.</p>
            ) : (
              <>
                <Counts liable={document} />
                <NextLapses nextLapses={document.nextLapses} />
                <Agents liable={document} only={only} cursor={cursor} />
              </>
            )}
            <Indexed asOf={document.asOf} unreadable={document.unreadable}>
              The registry has no list of a person's agents: to verify an agent, go to its page.
            </Indexed>
            <DomainBinding key={person} person={person} />
          </>
        )}
      </Answered>
      <p>
        <a href={hrefTo(["wallet", person])}>Verdict on this wallet</a>
      </p>
    </>
  );
}

function Counts({ liable }: { liable: Liable }) {
  return (
    <>
      <Figures>
        <Fact term="Agents">{whole(liable.total)}</Fact>
        <Fact term="Compliant">{whole(liable.compliantCount)}</Fact>
        <Fact term="Attestation expired">{whole(liable.expiredCount)}</Fact>
      </Figures>
      <section>
        <h2>By status</h2>
        <Bars
          caption="The person's agents in each status"
          head={["Status", "Agents"]}
          rows={STATUSES.map((status) => ({
            label: status,
            value: liable.statusDistribution[status],
            shown: whole(liable.statusDistribution[status]),
            kind: status,
          }))}
        />
      </section>
      {liable.basisDistribution && <ByBasis person={liable.haftungsperson} counts={liable.basisDistribution} />}
    </>
  );
}

function ByBasis({ person, counts }: { person: string; counts: NonNullable<Liable["basisDistribution"]> }) {
  return (
    <section>
      <h2>By what ties the wallet to them</h2>
      <ul class="chips">
        {BASES_OF_LISTS.map((basis) => (
          <li key={basis}>
            <a href={hrefTo(["liable", person], { basis })}>
              {basis}: {whole(counts[basis])}
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

function NextLapses({ nextLapses }: { nextLapses: Liable["nextLapses"] }) {
  return (
    <>
      <h2>Attestations that lapse next</h2>
      {nextLapses.length === 0 ? (
        <p class="empty">None: no agent of this person is compliant.</p>
      ) : (
        <AgentTable caption="Attestations that lapse next" columns={[agent, lapses, wallet]} agents={nextLapses} />
      )}
    </>
  );
}

function Agents({ liable, only, cursor }: { liable: Liable; only: string; cursor: string }) {
  const { haftungsperson, data, next } = liable;
  const at = (cursor?: string): string => hrefTo(["liable", haftungsperson], { basis: only, cursor });
  const columns = [agent, status, compliant, basis, wallet, scope];
  const named = data.filter(({ liability }) => liability.basis === "named");
  const tied = data.filter(({ liability }) => liability.basis !== "named");
  return (
    <>
      <h2>Agents</h2>
      <p>
        <a href={listHref({ haftungsperson })}>Search, filter and sort them</a>
        {only !== "" && (
          <>
            . Shown are those that are <strong>{only}</strong>:{" "}
            <a href={hrefTo(["liable", haftungsperson])}>show all</a>
          </>
        )}
      </p>
      {data.length === 0 && <p class="empty">This page is beyond the end.</p>}
      {tied.length > 0 && <AgentTable caption="Agents" columns={columns} agents={tied} />}
      {named.length > 0 && (
        <>
          <h2>Only named</h2>
          <p>
            These registrations name this wallet, which has done nothing for the agents. A registration can name any
            wallet: they say nothing about the person.
          </p>
          <AgentTable caption="Agents that only name this wallet" columns={columns} agents={named} />
        </>
      )}
      {(cursor !== "" || next) && (
        <CursorPager label="Agents" first={cursor === "" ? undefined : at()} next={next ? at(next) : undefined} />
      )}
    </>
  );
}
