/** The page: which view the address names, and what happens on the way from one to the next. */

import "../styles/main.css";

import { announce, replace } from "./dom";
import { failure } from "./parts/failure";
import { search } from "./parts/search";
import { routeOf, type Route } from "./router";
import type { Scope } from "./viewLifetime";
import type { Draw } from "./view";
import { agent } from "./views/agent";
import { agents } from "./views/agents";
import { home } from "./views/home";
import { lineage } from "./views/lineage";
import { missing } from "./views/missing";
import { register } from "./views/register";
import { settings } from "./views/settings";
import { statistics } from "./views/statistics";
import { wallet } from "./views/wallet";
import { listenForWallets } from "./wallets";

const SITE = "Agent registry";

function viewFor({ segments: [first, , third, ...rest] }: Route, length: number): Draw {
  if (first === undefined) return home;
  if (length === 1) {
    const single: Record<string, Draw> = { agents, statistics, register, settings };
    return Object.hasOwn(single, first) ? (single[first] ?? missing) : missing;
  }
  if (first === "wallet" && length === 2) return wallet;
  if (first === "agent" && length === 2) return agent;
  if (first === "agent" && length === 3 && third === "lineage" && rest.length === 0) return lineage;
  return missing;
}

const content = document.getElementById("content") as HTMLElement;
const head = document.querySelector(".masthead-search") as HTMLElement;
const finder = search();
let leave = new AbortController();
let isArrival = true;

function show(): void {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const scope: Scope = {
    signal,
    busy: (isBusy) => {
      if (!signal.aborted) content.setAttribute("aria-busy", String(isBusy));
    },
  };
  scope.busy(false);
  const route = routeOf(location.hash);
  const draw = viewFor(route, route.segments.length);
  const focused = document.activeElement?.id ?? "";
  finder.reset();

  let title = "";
  try {
    const view = draw(scope, route);
    title = view.title;
    replace(content, ...view.body);
  } catch (error) {
    replace(content, failure(scope, error));
  }
  document.title = title === "" ? SITE : `${title} · ${SITE}`;
  (document.getElementById("hero-search") ?? head).append(finder.element);
  markCurrent(route.segments[0]);

  // On arrival from elsewhere the browser's own order of things is right. Within the page the heading is where to go on,
  // unless the visitor is busy with a filter that is still there.
  if (!isArrival) {
    const filter = focused === "" ? null : content.querySelector<HTMLElement>(`select#${CSS.escape(focused)}`);
    (filter ?? content.querySelector("h1"))?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
    announce("");
  }
  isArrival = false;
}

function markCurrent(first: string | undefined): void {
  const current = first === "agent" ? "agents" : first;
  for (const link of document.querySelectorAll<HTMLAnchorElement>(".nav a")) {
    if (link.hash === `#/${current}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// The fragment is the route, so the skip link must not be one.
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  content.focus();
});

listenForWallets();
window.addEventListener("hashchange", show);
show();
