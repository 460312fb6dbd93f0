/** Which view an address names. */

import type { FunctionComponent } from "preact";

import type { Route } from "./router";
import { AgentView } from "./views/agent";
import { AgentsView } from "./views/agents";
import { AskView } from "./views/ask";
import { ChangesView } from "./views/changes";
import { HistoryView } from "./views/history";
import { HomeView } from "./views/home";
import { LiableView } from "./views/liable";
import { LineageView } from "./views/lineage";
import { MissingView } from "./views/missing";
import { RegisterView } from "./views/register";
import { SettingsView } from "./views/settings";
import { StatisticsView } from "./views/statistics";
import { WalletView } from "./views/wallet";

/** What takes the page's main part. It opens with a `Heading`. */
export type View = FunctionComponent<{ route: Route }>;

/** Views at an address of one word. */
const SINGLE = new Map<string, View>([
  ["agents", AgentsView],
  ["changes", ChangesView],
  ["statistics", StatisticsView],
  ["register", RegisterView],
  ["ask", AskView],
  ["settings", SettingsView],
]);

export function viewOf(segments: string[]): View {
  const [first, , third] = segments;
  if (first === undefined) return HomeView;
  if (segments.length === 1) return SINGLE.get(first) ?? MissingView;
  if (first === "wallet" && segments.length === 2) return WalletView;
  if (first === "liable" && segments.length === 2) return LiableView;
  if (first === "agent" && segments.length === 2) return AgentView;
  if (first === "agent" && segments.length === 3 && third === "lineage") return LineageView;
  if (first === "agent" && segments.length === 3 && third === "history") return HistoryView;
  return MissingView;
}
