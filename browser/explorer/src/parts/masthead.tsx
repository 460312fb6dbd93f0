/** The page's head: its name, the ways through it, and the search, unless the view has that itself. */

import { hrefTo } from "../router";
import { Search } from "./search";

const LINKS: [string, string][] = [
  ["agents", "Agents"],
  ["changes", "Changes"],
  ["statistics", "Statistics"],
  ["register", "Register"],
  ["ask", "Ask"],
  ["settings", "Settings"],
];

export function Masthead({ address, segments: [first] }: { address: string; segments: string[] }) {
  const current = first === "agent" ? "agents" : first;
  return (
    <header class="masthead">
      <div class="sheet masthead-row">
        <a class="brand" href={hrefTo([])}>
          <Mark />
          <span>Agent registry</span>
        </a>
        <nav class="nav" aria-label="Main">
          {LINKS.map(([view, text]) => (
            <a key={view} href={hrefTo([view])} aria-current={view === current ? "page" : undefined}>
              {text}
            </a>
          ))}
        </nav>
        {/* Empty in each new view. */}
        <div class="masthead-search">{first !== undefined && <Search key={address} />}</div>
      </div>
    </header>
  );
}

function Mark() {
  return (
    <svg viewBox="0 0 32 32" width="28" height="28" aria-hidden="true">
      <rect class="brand-sheet" x="1" y="1" width="30" height="30" rx="4" />
      <path class="brand-rule" d="M6 9h20M6 14.5h20M6 20h10M6 25h10" />
      <path class="brand-margin" d="M11 5v22" />
      <path class="brand-tick" d="M19.5 22l2.7 2.8 4.8-6" />
    </svg>
  );
}
