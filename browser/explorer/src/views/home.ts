/** The start page: the search, and the registry in figures. */

import type { DetailedStats } from "../documents";
import { h } from "../dom";
import { whole } from "../format";
import { agentLink, ago, badge, figures, table, walletLink } from "../parts/facts";
import { answered, skeleton } from "../parts/liveAnswer";
import { hrefTo } from "../router";
import { heading, type Draw } from "../view";

/** How many of the last registrations are shown here. */
const LATEST = 5;

export const home: Draw = (scope) => ({
  title: "",
  body: [
    h(
      "div",
      { class: "hero" },
      heading("Know the agent before you serve it"),
      h(
        "p",
        { class: "lead" },
        "Is this wallet a registered AI agent, is it compliant, and who is liable for it? Look it up.",
      ),
      h("div", { id: "hero-search" }),
    ),
    h("h2", {}, "The registry now"),
    answered<[DetailedStats]>(
      scope,
      ["/api/v1/stats/detailed"],
      ([{ document }]) => [
        figures(
          ["Agents registered", whole(document.totalAgents)],
          ["Compliant", whole(document.compliantCount)],
          ["Compliance rate", `${document.complianceRate} %`],
          ["Suspended", whole(document.statusDistribution.Suspended)],
        ),
        h("h2", {}, "Latest registrations"),
        document.recentRegistrations.length === 0
          ? h(
              "p",
              { class: "empty" },
              "No agent has been registered yet. ",
              h("a", { href: hrefTo(["register"]) }, "Register the first"),
              ".",
            )
          : table(
              "Latest registrations",
              ["Agent", "Status", "Registered", "Wallet"],
              document.recentRegistrations
                .slice(0, LATEST)
                .map((agent) => [
                  agentLink(agent.agentId),
                  badge(agent.status),
                  ago(scope, agent.registeredAt),
                  walletLink(agent.agentWallet),
                ]),
            ),
        h("p", {}, h("a", { href: hrefTo(["agents"]) }, "All agents")),
      ],
      skeleton(9),
    ),
  ],
});
