/** The start page: the search, and the registry in figures. */

import type { DetailedStats } from "../documents";
import { whole } from "../format";
import { AgentTable, COLUMNS } from "../parts/agentTable";
import { Answered } from "../parts/answer";
import { Fact, Figures } from "../parts/facts";
import { Heading } from "../parts/heading";
import { Search } from "../parts/search";
import { Skeleton } from "../parts/skeleton";
import { hrefTo } from "../router";

/** How many of the last registrations are shown here. */
const LATEST = 5;

const { agent, status, age, wallet } = COLUMNS;

export function HomeView() {
  return (
    <>
      <div class="hero">
        <Heading>Know the agent before you serve it</Heading>
        <p class="lead">Is this wallet a registered AI agent, is it compliant, and who is liable for it? Look it up.</p>
        <Search />
      </div>
      <h2>The registry now</h2>
      <Answered<[DetailedStats]> paths={["/api/v1/stats/detailed"]} placeholder={<Skeleton lines={9} />}>
        {([{ document }]) => <Registry stats={document} />}
      </Answered>
    </>
  );
}

function Registry({ stats }: { stats: DetailedStats }) {
  return (
    <>
      <Figures>
        <Fact term="Agents registered">{whole(stats.totalAgents)}</Fact>
        <Fact term="Compliant">{whole(stats.compliantCount)}</Fact>
        <Fact term="Compliance rate">{stats.complianceRate} %</Fact>
        <Fact term="Suspended">{whole(stats.statusDistribution.Suspended)}</Fact>
      </Figures>
      <h2>Latest registrations</h2>
      {stats.recentRegistrations.length === 0 ? (
        <p class="empty">
          No agent has been registered yet. <a href={hrefTo(["register"])}>Register the first</a>.
        </p>
      ) : (
        <AgentTable
          caption="Latest registrations"
          columns={[agent, status, age, wallet]}
          agents={stats.recentRegistrations.slice(0, LATEST)}
        />
      )}
      <p>
        <a href={hrefTo(["agents"])}>All agents</a>
      </p>
    </>
  );
}
