/** All agents, by page and status; both stand in the address. */

import { STATUSES, type AgentPage } from "../documents";
import { h, type Child } from "../dom";
import { counted, whole } from "../format";
import { answered, skeleton } from "../parts/liveAnswer";
import { agentLink, badge, table, time, walletLink } from "../parts/facts";
import { pager } from "../parts/pager";
import { go, hrefTo } from "../router";
import { heading, type Draw } from "../view";

const SIZES = ["20", "50", "100"];

export const agents: Draw = (scope, { query }) => {
  const asked = { status: query.get("status") ?? "", page: query.get("page") ?? "", limit: query.get("limit") ?? "" };
  const parameters = new URLSearchParams(Object.entries(asked).filter(([, value]) => value !== ""));
  const path = parameters.size === 0 ? "/api/v1/agents" : `/api/v1/agents?${parameters}`;
  return {
    title: asked.status === "" ? "Agents" : `Agents: ${asked.status}`,
    body: [
      heading("Agents"),
      filter(asked),
      answered<[AgentPage]>(scope, [path], ([{ document }]) => show(document, asked), skeleton(20)),
    ],
  };
};

interface Asked {
  status: string;
  page: string;
  limit: string;
}

function filter({ status, limit }: Asked): Child {
  const choice = (
    label: string,
    id: string,
    options: [string, string][],
    chosen: string,
  ): [HTMLElement, HTMLSelectElement] => {
    const select = h(
      "select",
      { id },
      options.map(([value, text]) => h("option", { value }, text)),
    );
    // An unknown value stays what it is; the API says what is wrong with it.
    select.value = chosen;
    return [h("div", { class: "field" }, h("label", { for: id }, label), select), select];
  };
  const [statusField, statusSelect] = choice(
    "Status",
    "status",
    [["", "All"], ...STATUSES.map((name): [string, string] => [name, name])],
    status,
  );
  const [sizeField, sizeSelect] = choice(
    "Per page",
    "limit",
    SIZES.map((size): [string, string] => [size, size]),
    limit === "" ? "20" : limit,
  );
  const apply = (): void =>
    go(
      hrefTo(["agents"], {
        status: statusSelect.value,
        limit: sizeSelect.value === "20" ? undefined : sizeSelect.value,
      }),
    );
  statusSelect.addEventListener("change", apply);
  sizeSelect.addEventListener("change", apply);
  return h("div", { class: "filter" }, statusField, sizeField);
}

function show(list: AgentPage, asked: Asked): Child[] {
  const { data, total, page, totalPages } = list;
  const [at, last] = [BigInt(page), BigInt(totalPages)];
  const to = (number: bigint): string =>
    hrefTo(["agents"], { status: asked.status, page: number === 1n ? undefined : number, limit: asked.limit });
  const rows = data.map((agent) => [
    agentLink(agent.agentId),
    badge(agent.status),
    time(agent.registeredAt),
    walletLink(agent.creator),
  ]);
  return [
    h("p", { class: "muted" }, `${counted(total, "agent")}${asked.status === "" ? "" : `, ${asked.status}`}`),
    rows.length > 0
      ? table("Agents", ["Agent", "Status", "Registered", "Creator"], rows)
      : h("p", { class: "empty" }, BigInt(total) === 0n ? "No agents." : "This page is beyond the end."),
    pager({
      label: "Agents",
      shown: `Page ${whole(page)} of ${whole(totalPages)}`,
      previous: at > 1n ? to(at > last ? (last > 0n ? last : 1n) : at - 1n) : undefined,
      next: at < last ? to(at + 1n) : undefined,
    }),
  ];
}
