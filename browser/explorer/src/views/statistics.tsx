/** The registry in charts. Each chart is a table with bars, so that figures and pictures cannot drift apart. */

import type { ComponentChildren } from "preact";

import { STATUSES, type DetailedStats, type Integer, type RevenueAggregate } from "../documents";
import { counted, units, whole } from "../format";
import { listHref } from "../listing";
import { Copyable } from "../parts/address";
import { AgentTable, COLUMNS } from "../parts/agentTable";
import { Answered } from "../parts/answer";
import { Bars } from "../parts/bars";
import { Fact, Facts, Figures } from "../parts/facts";
import { Heading } from "../parts/heading";
import { RegistrationLine } from "../parts/registrationLine";
import { Skeleton } from "../parts/skeleton";
import { ChainWord } from "../parts/text";

/** Rows of a revenue chart; agents name currencies and categories as they like. */
const MOST = 20;

const { agent, status, age, wallet, person } = COLUMNS;

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
              label: <a href={listHref({ status })}>{status}</a>,
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
              label: <a href={listHref({ generation })}>Generation {generation}</a>,
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
        <AgentTable
          caption="Latest registrations"
          columns={[agent, status, age, wallet, person]}
          agents={registrations}
        />
      )}
    </>
  );
}
