/** The verdict on a wallet, as a provider acts on it. */

import type { Kya, KyaAgent } from "../documents";
import { h, type Child } from "../dom";
import { duration } from "../format";
import { agentLink, ago, badge, copyable, facts, hex, time } from "../parts/facts";
import { answered } from "../parts/liveAnswer";
import { chainText } from "../parts/text";
import { hrefTo } from "../router";
import { everySecond, type Scope } from "../viewLifetime";
import { attestationEnds, pastOf, REMARKS, verdictOf, WORDS, type Verdict } from "../verdict";
import { heading, type Draw } from "../view";

export const wallet: Draw = (scope, { segments }) => {
  const address = segments[1] ?? "";
  return {
    title: /^0x[0-9a-fA-F]{40}$/.test(address) ? `Wallet ${address.slice(0, 6)}…${address.slice(-4)}` : "Wallet",
    body: [
      heading(h("span", { class: "kicker" }, "Wallet "), h("span", { class: "heading-hex" }, hex(address))),
      answered<[Kya]>(
        scope,
        // With its past, so that a wallet revoked and registered again does not look new.
        [`/api/v1/kya/${encodeURIComponent(address)}?history=1`],
        ([{ document }], again) => show(scope, document, again),
        waiting(),
      ),
    ],
  };
};

function show(scope: Scope, kya: Kya, again: () => void): Child[] {
  const verdict = verdictOf(kya);
  const { act, why } = WORDS[verdict];
  const { agent } = kya;
  return [
    h(
      "div",
      { class: "verdict", role: "status", "data-verdict": verdict },
      h("p", { class: "verdict-act" }, act),
      h("p", { class: "verdict-why" }, why),
      agent && timeLeft(scope, kya, agent, verdict, again),
      remarks(kya),
    ),
    agent ? liable(scope, agent) : unregistered(),
    past(kya),
    h("p", { class: "muted" }, "Checked ", time(kya.checkedAt), ". An answer is kept for up to a minute."),
  ];
}

/** Until when, or since when. Once the moment comes the verdict shown is no longer true: it is asked for again. */
function timeLeft(scope: Scope, kya: Kya, agent: KyaAgent, verdict: Verdict, again: () => void): Child {
  if (verdict === "renew-stopped") {
    return h(
      "p",
      { class: "verdict-time" },
      `Status ${agent.status}; last attested `,
      time(agent.lastAttestation),
      ".",
    );
  }
  const isCurrent = verdict === "provision";
  const ends = isCurrent ? kya.compliantUntil : attestationEnds(agent, false, Date.now());
  if (ends === undefined || ends === null) {
    return h(
      "p",
      { class: "verdict-time" },
      "Last attested ",
      time(agent.lastAttestation),
      "; this registry's grace period is its own.",
    );
  }
  const moment = Date.parse(ends);
  if (!isCurrent) {
    return h("p", { class: "verdict-time" }, "Attestation expired ", time(ends), ", ", ago(scope, ends), ".");
  }
  const left = h("strong", { class: "left" });
  const line = h("p", { class: "verdict-time" }, "Attestation current until ", time(ends), ", ", left, " left.");
  // Every second's change would be read out otherwise.
  line.setAttribute("aria-live", "off");
  // Where the API's clock is behind this one, the answer stays for a while what it was.
  const isAhead = moment > Date.now();
  everySecond(scope, () => {
    const seconds = (moment - Date.now()) / 1_000;
    left.textContent = duration(seconds);
    if (seconds > 0) return true;
    if (isAhead) again();
    return false;
  });
  return line;
}

/** What else a provider should know. */
function remarks({ reasons }: Kya): Child {
  const words = reasons.map((reason) => REMARKS[reason]).filter((remark) => remark !== undefined);
  return (
    words.length > 0 &&
    h(
      "ul",
      { class: "verdict-remarks", "aria-label": "Remarks" },
      words.map((word) => h("li", {}, word)),
    )
  );
}

/** Who had the wallet before, and which ancestors of its agent are not Active. */
function past(kya: Kya): Child {
  const { formerAgents, formerAgentsTruncated, ancestorsNotActive } = kya;
  const former = formerAgents === "unknown" ? [] : formerAgents;
  const ancestors = ancestorsNotActive === "unknown" ? [] : ancestorsNotActive;
  return [
    h("h2", {}, "The wallet's past"),
    h("p", {}, pastOf(kya), formerAgentsTruncated && " These are the newest of them."),
    former.length > 0 &&
      h(
        "ul",
        { "aria-label": "Former agents" },
        former.map(({ agentId, status, registeredAt }) =>
          h("li", {}, agentLink(agentId), " ", badge(status), " registered ", time(registeredAt)),
        ),
      ),
    ancestors.length > 0 && [
      h("h2", {}, "Ancestors that are not Active"),
      h(
        "ul",
        { "aria-label": "Ancestors that are not Active" },
        ancestors.map(({ agentId, status }) => h("li", {}, agentLink(agentId), " ", badge(status))),
      ),
    ],
  ];
}

function liable(scope: Scope, agent: KyaAgent): Child {
  return facts(
    ["Liable (Haftungsperson)", copyable(agent.haftungsperson)],
    ["Agent", agentLink(agent.agentId), " ", badge(agent.status)],
    ["Operational scope", chainText(agent.operationalScope)],
    ["Registered", time(agent.registeredAt), " ", ago(scope, agent.registeredAt)],
    ["Last attested", time(agent.lastAttestation), " ", ago(scope, agent.lastAttestation)],
    ["Creator", copyable(agent.creator)],
    ["Agent wallet", copyable(agent.agentWallet)],
  );
}

function unregistered(): Child {
  return h(
    "p",
    {},
    "Nobody is liable for what this wallet does. Its holder can ",
    h("a", { href: hrefTo(["register"]) }, "register it"),
    " without ETH.",
  );
}

/** As much room as the verdict takes. */
function waiting(): Child {
  return h(
    "div",
    {},
    h(
      "div",
      { class: "verdict waiting" },
      h("p", { class: "verdict-act" }, "Asking…"),
      h("p", { class: "verdict-why" }, "The registry is being read."),
    ),
  );
}
