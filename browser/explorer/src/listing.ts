/** What a list of agents is asked for: the address's query says it, in the words of the API's `/agents`. */

import { hrefTo } from "./router";

/** In the order in which addresses have them. */
const PARAMETERS = [
  "q",
  "haftungsperson",
  "creator",
  "parent",
  "generation",
  "status",
  "compliant",
  "sort",
  "limit",
  "page",
  "cursor",
] as const;

/** As texts, which the API judges; empty where the address does not say. */
export type Asked = Record<(typeof PARAMETERS)[number], string>;

/** The newest first: what changed last is what visitors look for. */
export const DEFAULT_SORT = "-id";
/** The order in which the chain has agents, and which takes no index. */
const CHAIN_SORT = "id";
export const DEFAULT_LIMIT = "20";

/** What only an index can filter by. */
const FILTERS = ["q", "haftungsperson", "creator", "parent", "generation", "compliant"] as const;

/** What an address asks for. Only the chain's own list has numbered pages. */
export function askedOf(query: URLSearchParams): Asked {
  const asked = Object.fromEntries(PARAMETERS.map((name) => [name, query.get(name) ?? ""])) as Asked;
  // The registry counts ids up as it registers.
  asked.sort = asked.sort.replace(/^(-?)registration$/, "$1id");
  return asked.sort === "" ? { ...asked, sort: asked.page === "" ? DEFAULT_SORT : CHAIN_SORT } : asked;
}

/** Whether any node can be asked the same: nothing in it takes an index. */
export function isOfChain(asked: Asked): boolean {
  return asked.sort === CHAIN_SORT && asked.cursor === "" && FILTERS.every((name) => asked[name] === "");
}

/** The same agents in the chain's order. */
export function inChainOrder(asked: Asked): Asked {
  return { ...asked, sort: CHAIN_SORT, cursor: "" };
}

/** Whether there is anything in it that leaves agents out. */
export function isFiltered(asked: Asked): boolean {
  return asked.status !== "" || FILTERS.some((name) => asked[name] !== "");
}

/** Whether nothing of the list comes before. */
export function isFirstPage({ page, cursor }: Asked): boolean {
  return cursor === "" && (page === "" || page === "1");
}

/** The question to the API. */
export function pathOf(asked: Asked): string {
  const parameters = new URLSearchParams();
  for (const name of PARAMETERS) {
    const isImplied = asked[name] === "" || (name === "sort" && isOfChain(asked));
    if (!isImplied) parameters.set(name, asked[name]);
  }
  return parameters.size === 0 ? "/api/v1/agents" : `/api/v1/agents?${parameters}`;
}

/** The list's address. */
export function listHref(asked: Partial<Asked>): string {
  const { sort = DEFAULT_SORT, limit = DEFAULT_LIMIT, page = "" } = asked;
  const isImplied = sort === (page === "" ? DEFAULT_SORT : CHAIN_SORT);
  const said = { ...asked, sort: isImplied ? "" : sort, limit: limit === DEFAULT_LIMIT ? "" : limit };
  return hrefTo(["agents"], Object.fromEntries(PARAMETERS.map((name) => [name, said[name]])));
}
