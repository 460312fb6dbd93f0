/** One agent: its record, its compliance, its children and its revenue. */

import type { Answer } from "../api";
import type { AgentDetail, Integer, RevenueHistory } from "../documents";
import { h, type Child } from "../dom";
import { counted, units, whole } from "../format";
import { answered, skeleton } from "../parts/liveAnswer";
import { agentLink, ago, badge, copyable, facts, hex, table, time, walletLink } from "../parts/facts";
import { pager } from "../parts/pager";
import { revenueCharts } from "../parts/revenueChart";
import { chainText, chainWord } from "../parts/text";
import { hrefTo } from "../router";
import type { Scope } from "../viewLifetime";
import { attestationEnds } from "../verdict";
import { heading, type Draw } from "../view";

/** Reports on one page. */
const REPORTS = 50;
/** Children named here; all are in the lineage. */
const CHILDREN = 24;
/** What the contract's zero means: never. */
const NEVER = "1970-01-01T00:00:00.000Z";

export const agent: Draw = (scope, { segments, query }) => {
  const id = segments[1] ?? "";
  const offset = query.get("offset") ?? "0";
  const path = `/api/v1/agent/${encodeURIComponent(id)}`;
  return {
    title: `Agent ${id}`,
    body: [
      heading(`Agent ${id}`),
      answered<[AgentDetail, RevenueHistory]>(
        scope,
        [path, `${path}/revenue?limit=${REPORTS}&offset=${encodeURIComponent(offset)}`],
        ([record, revenue]) => [...show(scope, record.document), ...reports(id, revenue)],
        skeleton(16),
      ),
    ],
  };
};

function show(scope: Scope, { agent, children, compliance }: AgentDetail): Child[] {
  const isCompliant = compliance.isActive && compliance.attestationCurrent;
  const ends = attestationEnds(agent, compliance.attestationCurrent, Date.now());
  return [
    h(
      "div",
      { class: "standing", "data-compliant": String(isCompliant) },
      h("p", { class: "standing-word" }, badge(agent.status), " ", isCompliant ? "Compliant" : "Not compliant"),
      h(
        "p",
        {},
        compliance.attestationCurrent ? "Attestation current" : "Attestation expired",
        ends !== undefined && [compliance.attestationCurrent ? " until " : " since ", time(ends)],
        ". ",
        h("a", { href: hrefTo(["wallet", agent.agentWallet]) }, "Verdict on its wallet"),
      ),
    ),
    h("h2", {}, "Record"),
    facts(
      ["Liable (Haftungsperson)", copyable(agent.haftungsperson)],
      ["Agent wallet", copyable(agent.agentWallet, walletLink(agent.agentWallet))],
      ["Creator", copyable(agent.creator)],
      ["Operational scope", chainText(agent.operationalScope)],
      ["Parent", BigInt(agent.parentAgentId) === 0n ? "None: a root agent" : agentLink(agent.parentAgentId)],
      ["Generation", whole(agent.generation)],
      ["Self-modifying", agent.selfModifying ? "Yes" : "No"],
      ["Registered", time(agent.registeredAt), " ", ago(scope, agent.registeredAt)],
      ["Last attested", time(agent.lastAttestation), " ", ago(scope, agent.lastAttestation)],
      ["Last revenue report", agent.lastRevenueReport === NEVER ? "Never" : time(agent.lastRevenueReport)],
      ["Constitution hash", copyable(agent.constitutionHash, hex(agent.constitutionHash), "hash")],
      ["Capability hash", copyable(agent.capabilityHash, hex(agent.capabilityHash), "hash")],
    ),
    h("h2", {}, "Lineage"),
    h(
      "p",
      {},
      children.length === 0 ? "No children. " : `${counted(compliance.childCount, "child", "children")}. `,
      h("a", { href: hrefTo(["agent", agent.agentId, "lineage"]) }, "Lineage as a tree"),
    ),
    children.length > 0 && childList(children),
  ];
}

function childList(children: Integer[]): Child {
  const more = children.length - CHILDREN;
  return h(
    "ul",
    { class: "chips", "aria-label": "Children" },
    children.slice(0, CHILDREN).map((id) => h("li", {}, agentLink(id))),
    more > 0 && h("li", { class: "muted" }, `and ${whole(more)} more`),
  );
}

function reports(id: string, { document }: Answer<RevenueHistory>): Child[] {
  const { data, total, offset, limit } = document;
  const [from, all, step] = [BigInt(offset), BigInt(total), BigInt(limit)];
  const at = (start: bigint): string => hrefTo(["agent", id], { offset: start === 0n ? undefined : start });
  return [
    h("h2", {}, "Revenue"),
    all === 0n && h("p", { class: "empty" }, "Nothing reported yet."),
    all > 0n && [
      totals(document),
      ...revenueCharts(data),
      table(
        "Revenue reports",
        ["Reported", "Period", "Category", "Currency", "Amount"],
        data.map((report) => [
          time(report.reportedAt),
          [time(report.periodStart, "day"), " to ", time(report.periodEnd, "day")],
          chainWord(report.category),
          chainWord(report.currency),
          units(report.amount),
        ]),
        [4],
      ),
      (all > step || from > 0n) &&
        pager({
          label: "Revenue reports",
          shown:
            data.length === 0
              ? "Nothing on this page"
              : `${whole(from + 1n)} to ${whole(from + BigInt(data.length))} of ${whole(total)}`,
          previous: from > 0n ? at(from > step ? from - step : 0n) : undefined,
          next: from + step < all ? at(from + step) : undefined,
        }),
    ],
  ];
}

/** Sums by currency, where the page holds every report there is. */
function totals({ data, total }: RevenueHistory): Child {
  if (BigInt(data.length) !== BigInt(total)) return false;
  const sums = new Map<string, bigint>();
  for (const { currency, amount } of data) sums.set(currency, (sums.get(currency) ?? 0n) + BigInt(amount));
  return h(
    "p",
    {},
    `${counted(total, "report")}: `,
    [...sums].map(([currency, sum], index) => [
      index > 0 && ", ",
      h("strong", { class: "amount" }, units(sum)),
      " ",
      chainWord(currency),
    ]),
    ". As the agent reported it.",
  );
}
