/** The registry in charts. Each chart is a table with bars, so that figures and pictures cannot drift apart. */

import { STATUSES, type DetailedStats, type Integer, type RevenueAggregate } from "../documents";
import { h, type Child } from "../dom";
import { counted, units, whole } from "../format";
import { answered, skeleton } from "../parts/liveAnswer";
import { bars } from "../parts/bars";
import { agentLink, ago, badge, copyable, facts, figures, table, walletLink } from "../parts/facts";
import { chainWord } from "../parts/text";
import { timeline } from "../parts/timeline";
import { hrefTo } from "../router";
import type { Scope } from "../viewLifetime";
import { heading, type Draw } from "../view";

/** Rows of a revenue chart; agents name currencies and categories as they like. */
const MOST = 20;

export const statistics: Draw = (scope) => ({
  title: "Statistics",
  body: [
    heading("Statistics"),
    answered<[DetailedStats, RevenueAggregate]>(
      scope,
      ["/api/v1/stats/detailed", "/api/v1/revenue/aggregate"],
      ([stats, revenue]) => show(scope, stats.document, revenue.document),
      skeleton(20),
    ),
  ],
});

function show(scope: Scope, stats: DetailedStats, revenue: RevenueAggregate): Child[] {
  return [
    figures(
      ["Agents registered", whole(stats.totalAgents)],
      ["Compliant", whole(stats.compliantCount)],
      ["Compliance rate", `${stats.complianceRate} %`],
      ["Revenue reports", whole(revenue.totalReports)],
    ),
    h(
      "div",
      { class: "columns" },
      h(
        "section",
        {},
        h("h2", {}, "By status"),
        bars(
          "Agents in each status",
          ["Status", "Agents"],
          STATUSES.map((status) => ({
            label: h("a", { href: hrefTo(["agents"], { status }) }, status),
            value: stats.statusDistribution[status],
            shown: whole(stats.statusDistribution[status]),
            kind: status,
          })),
        ),
      ),
      h(
        "section",
        {},
        h("h2", {}, "By generation"),
        bars(
          "Agents in each generation; roots are generation 0",
          ["Generation", "Agents"],
          Object.entries(stats.generationDistribution).map(([generation, value]) => ({
            label: `Generation ${generation}`,
            value,
            shown: whole(value),
          })),
        ),
      ),
      h(
        "section",
        {},
        h("h2", {}, "Revenue by currency"),
        revenueBars("Sum of all reports in each currency", "Currency", revenue.byCurrency),
      ),
      h(
        "section",
        {},
        h("h2", {}, "Revenue by category"),
        revenueBars("Sum of all reports in each category, whatever their currency", "Category", revenue.byCategory),
      ),
    ),
    h("h2", {}, "Latest registrations"),
    timeline(stats.recentRegistrations),
    stats.recentRegistrations.length === 0
      ? h("p", { class: "empty" }, "No agent has been registered yet.")
      : table(
          "Latest registrations",
          ["Agent", "Status", "Registered", "Wallet", "Liable"],
          stats.recentRegistrations.map((agent) => [
            agentLink(agent.agentId),
            badge(agent.status),
            ago(scope, agent.registeredAt),
            walletLink(agent.agentWallet),
            walletLink(agent.haftungsperson),
          ]),
        ),
    h("h2", {}, "Read from"),
    facts(["Registry", copyable(stats.registryAddress)], ["RPC endpoint", stats.chain]),
  ];
}

/** Amounts reach from a cent to more than a double holds: the bars are by digits, which the caption says. */
function revenueBars(caption: string, what: string, sums: Record<string, Integer>): Child[] {
  const sorted = Object.entries(sums).sort(([, a], [, b]) => (a < b ? 1 : a > b ? -1 : 0));
  const rows = sorted.slice(0, MOST).map(([name, value]) => ({ label: chainWord(name), value, shown: units(value) }));
  const left = sorted.length - rows.length;
  return [
    bars([caption, ". Bars grow with the number of digits."], [what, "Amount"], rows, "logarithmic"),
    left > 0 && h("p", { class: "note" }, `The largest ${MOST}; ${counted(left, "more")} in the API's answer.`),
  ];
}
