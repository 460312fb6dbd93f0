/** The registry in charts. Each chart is a table with bars, so that figures and pictures cannot drift apart. */

import type { ComponentChildren } from "preact";

import { STATUSES, type DetailedStats, type Integer, type RevenueAggregate } from "../documents";
import { counted, units, whole } from "../format";
import { Copyable, PersonLink, WalletLink } from "../parts/address";
import { AgentLink, Badge } from "../parts/agent";
import { Answered } from "../parts/answer";
import { Bars } from "../parts/bars";
import { Fact, Facts, Figures } from "../parts/facts";
import { Heading } from "../parts/heading";
import { Ago } from "../parts/moment";
import { RegistrationLine } from "../parts/registrationLine";
import { Skeleton } from "../parts/skeleton";
import { Table } from "../parts/table";
import { ChainWord } from "../parts/text";
import { hrefTo } from "../router";

/** Rows of a revenue chart; agents name currencies and categories as they like. */
const MOST = 20;

export function StatisticsView() {
  return (
    <>
      <Heading title="Statistics" />
      <Answered<[DetailedStats, RevenueAggregate]>
        paths={["/api/v1/stats/detailed", "/api/v1/revenue/aggregate"]}
        placeholder={<Skeleton lines={20} />}
      >
        {([stats, revenue]) => <Statistics stats={stats.document} revenue={revenue.document} />}
      </Answered>
    </>
  );
}

function Statistics({ stats, revenue }: { stats: DetailedStats; revenue: RevenueAggregate }) {
  return (
    <>
      <Figures>
        <Fact term="Agents registered">{whole(stats.totalAgents)}</Fact>
        <Fact term="Compliant">{whole(stats.compliantCount)}</Fact>
        <Fact term="Compliance rate">{stats.complianceRate} %</Fact>
        <Fact term="Revenue reports">{whole(revenue.totalReports)}</Fact>
      </Figures>
      <div class="columns">
        <Chart heading="By status">
          <Bars
            caption="Agents in each status"
            head={["Status", "Agents"]}
            rows={STATUSES.map((status) => ({
              label: <a href={hrefTo(["agents"], { status })}>{status}</a>,
              value: stats.statusDistribution[status],
              shown: whole(stats.statusDistribution[status]),
              kind: status,
            }))}
          />
        </Chart>
        <Chart heading="By generation">
          <Bars
            caption="Agents in each generation; roots are generation 0"
            head={["Generation", "Agents"]}
            rows={Object.entries(stats.generationDistribution).map(([generation, value]) => ({
              label: `Generation ${generation}`,
              value,
              shown: whole(value),
            }))}
          />
        </Chart>
        <Chart heading="Revenue by currency">
          <RevenueBars caption="Sum of all reports in each currency" what="Currency" sums={revenue.byCurrency} />
        </Chart>
        <Chart heading="Revenue by category">
          <RevenueBars
            caption="Sum of all reports in each category, whatever their currency"
            what="Category"
            sums={revenue.byCategory}
          />
        </Chart>
      </div>
      <LatestRegistrations registrations={stats.recentRegistrations} />
      <h2>Read from</h2>
      <Facts>
        <Fact term="Registry">
          <Copyable text={stats.registryAddress} />
        </Fact>
        <Fact term="RPC endpoint">{stats.chain}</Fact>
      </Facts>
    </>
  );
}

function Chart({ heading, children }: { heading: string; children: ComponentChildren }) {
  return (
    <section>
      <h2>{heading}</h2>
      {children}
    </section>
  );
}

/** Amounts reach from a cent to more than a double holds: the bars are by digits, which the caption says. */
function RevenueBars({ caption, what, sums }: { caption: string; what: string; sums: Record<string, Integer> }) {
  const sorted = Object.entries(sums).sort(([, a], [, b]) => (a < b ? 1 : a > b ? -1 : 0));
  const rows = sorted
    .slice(0, MOST)
    .map(([name, value]) => ({ label: <ChainWord text={name} />, value, shown: units(value) }));
  const left = sorted.length - rows.length;
  return (
    <>
      <Bars
        caption={`${caption}. Bars grow with the number of digits.`}
        head={[what, "Amount"]}
        rows={rows}
        scale="logarithmic"
      />
      {left > 0 && (
        <p class="note">
          The largest {MOST}; {counted(left, "more")} in the API's answer.
        </p>
      )}
    </>
  );
}

function LatestRegistrations({ registrations }: { registrations: DetailedStats["recentRegistrations"] }) {
  return (
    <>
      <h2>Latest registrations</h2>
      <RegistrationLine registrations={registrations} />
      {registrations.length === 0 ? (
        <p class="empty">No agent has been registered yet.</p>
      ) : (
        <Table
          caption="Latest registrations"
          head={["Agent", "Status", "Registered", "Wallet", "Liable"]}
          rows={registrations.map((agent) => [
            <AgentLink id={agent.agentId} />,
            <Badge status={agent.status} />,
            <Ago since={agent.registeredAt} />,
            <WalletLink address={agent.agentWallet} />,
            <PersonLink address={agent.haftungsperson} />,
          ])}
        />
      )}
    </>
  );
}
