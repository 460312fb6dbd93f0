/** One agent: its record, its compliance, its children and its revenue. */

import type { AgentDetail, Integer, RevenueHistory } from "../documents";
import { counted, whole } from "../format";
import { listHref } from "../listing";
import { Copyable, CreatorLink, WalletLink } from "../parts/address";
import { AgentLink, Badge } from "../parts/agent";
import { Answered } from "../parts/answer";
import { Fact, Facts, LiableFact, TimeFact } from "../parts/facts";
import { Heading } from "../parts/heading";
import { Time } from "../parts/moment";
import { RevenueReports } from "../parts/revenueReports";
import { Skeleton } from "../parts/skeleton";
import { ChainText } from "../parts/text";
import { hrefTo, type Route } from "../router";
import { attestationEnds } from "../verdict";

/** Reports on one page. */
const REPORTS = 50;
/** Children named here; all are in the lineage. */
const CHILDREN = 24;
/** What the contract's zero means: never. */
const NEVER = "1970-01-01T00:00:00.000Z";

export function AgentView({ route: { segments, query } }: { route: Route }) {
  const id = segments[1] ?? "";
  const offset = query.get("offset") ?? "0";
  const path = `/api/v1/agent/${encodeURIComponent(id)}`;
  return (
    <>
      <Heading title={`Agent ${id}`} />
      <Answered<[AgentDetail, RevenueHistory]>
        paths={[path, `${path}/revenue?limit=${REPORTS}&offset=${encodeURIComponent(offset)}`]}
        placeholder={<Skeleton lines={16} />}
      >
        {([record, revenue]) => (
          <>
            <Standing record={record.document} />
            <h2>Record</h2>
            <Record agent={record.document.agent} liability={record.document.liability} />
            <h2>Lineage</h2>
            <Children record={record.document} />
            <h2>History</h2>
            <p>
              <a href={hrefTo(["agent", record.document.agent.agentId, "history"])}>What happened to it</a>
            </p>
            <h2>Revenue</h2>
            <RevenueReports id={id} history={revenue.document} />
          </>
        )}
      </Answered>
    </>
  );
}

function Standing({ record: { agent, compliance } }: { record: AgentDetail }) {
  const isCompliant = compliance.isActive && compliance.attestationCurrent;
  const ends = attestationEnds(agent, compliance.attestationCurrent, Date.now());
  return (
    <div class="standing" data-compliant={isCompliant}>
      <p class="standing-word">
        <Badge status={agent.status} /> {isCompliant ? "Compliant" : "Not compliant"}
      </p>
      <p>
        {compliance.attestationCurrent ? "Attestation current" : "Attestation expired"}
        {ends !== undefined && (
          <>
            {compliance.attestationCurrent ? " until " : " since "}
            <Time at={ends} />
          </>
        )}
        . <a href={hrefTo(["wallet", agent.agentWallet])}>Verdict on its wallet</a>
      </p>
    </div>
  );
}

function Record({ agent, liability }: Pick<AgentDetail, "agent" | "liability">) {
  return (
    <Facts>
      <LiableFact liability={liability} agent={agent} />
      <Fact term="Agent wallet">
        <Copyable text={agent.agentWallet}>
          <WalletLink address={agent.agentWallet} />
        </Copyable>
      </Fact>
      <Fact term="Creator">
        <Copyable text={agent.creator}>
          <CreatorLink address={agent.creator} />
        </Copyable>
      </Fact>
      <Fact term="Operational scope">
        <ChainText text={agent.operationalScope} />
      </Fact>
      <Fact term="Parent">
        {BigInt(agent.parentAgentId) === 0n ? "None: a root agent" : <AgentLink id={agent.parentAgentId} />}
      </Fact>
      <Fact term="Generation">{whole(agent.generation)}</Fact>
      <Fact term="Self-modifying">{agent.selfModifying ? "Yes" : "No"}</Fact>
      <TimeFact term="Registered" at={agent.registeredAt} />
      <TimeFact term="Last attested" at={agent.lastAttestation} />
      <Fact term="Last revenue report">
        {agent.lastRevenueReport === NEVER ? "Never" : <Time at={agent.lastRevenueReport} />}
      </Fact>
      <Fact term="Constitution hash">
        <Copyable text={agent.constitutionHash} what="hash" />
      </Fact>
      <Fact term="Capability hash">
        <Copyable text={agent.capabilityHash} what="hash" />
      </Fact>
    </Facts>
  );
}

function Children({ record: { agent, children, compliance } }: { record: AgentDetail }) {
  return (
    <>
      <p>
        {children.length === 0 ? "No children. " : `${counted(compliance.childCount, "child", "children")}. `}
        <a href={hrefTo(["agent", agent.agentId, "lineage"])}>Lineage as a tree</a>
      </p>
      {children.length > 0 && <ChildList parent={agent.agentId} ids={children} />}
    </>
  );
}

function ChildList({ parent, ids }: { parent: Integer; ids: Integer[] }) {
  const more = ids.length - CHILDREN;
  return (
    <ul class="chips" aria-label="Children">
      {ids.slice(0, CHILDREN).map((id) => (
        <li key={id}>
          <AgentLink id={id} />
        </li>
      ))}
      {more > 0 && (
        <li>
          <a href={listHref({ parent: String(parent) })}>and {whole(more)} more</a>
        </li>
      )}
    </ul>
  );
}
