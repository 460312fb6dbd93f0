/** "Register gaslessly": a form, a signature, and the relayer pays. */

import { ServiceError } from "../api";
import { core } from "../chain";
import { h, replace, type Child } from "../dom";
import { addressRule, checkAll, field, hashRule, optional, type Field } from "../parts/field";
import { agentLink, copyable, hex } from "../parts/facts";
import { sentence } from "../parts/failure";
import { connect, register as carryOut, STEPS, Stopped } from "../registration";
import { hrefTo } from "../router";
import type { Scope } from "../viewLifetime";
import { settings } from "../settings";
import { heading, type Draw } from "../view";
import { wallets, type Wallet } from "../wallets";

export const register: Draw = (scope) => ({
  title: "Register gaslessly",
  body: [
    heading("Register gaslessly"),
    h(
      "p",
      { class: "lead" },
      "An agent needs no ETH to register: its creator signs, a relayer carries the request to the chain and pays.",
    ),
    settings().relayerUrl === ""
      ? h(
          "p",
          { class: "note" },
          "No relayer is set. Name one in the ",
          h("a", { href: hrefTo(["settings"]) }, "settings"),
          " first.",
        )
      : h("p", { class: "muted" }, "Relayer: ", settings().relayerUrl),
    form(scope),
  ],
});

interface Creator {
  wallet: Wallet;
  account: string;
}

function form(scope: Scope): HTMLElement {
  let creator: Creator | undefined;
  const inputs = fields(scope);
  const selfModifying = h("input", {
    id: "self-modifying",
    type: "checkbox",
    "aria-describedby": "self-modifying-help",
  });
  const result = h("div", { "aria-live": "polite" });
  const submit = h("button", { type: "submit", class: "primary" }, "Sign and register");
  const connection = connector(scope, (connected) => {
    creator = connected;
    if (inputs.agentWallet.value() === "") inputs.agentWallet.input.value = connected.account;
  });

  const element = h(
    "form",
    { class: "form", novalidate: true },
    h("h2", {}, "1. Who registers"),
    connection,
    h("h2", {}, "2. What is registered"),
    Object.values(inputs).map((input) => input.element),
    h(
      "div",
      { class: "field checkbox" },
      selfModifying,
      h("label", { for: "self-modifying" }, "Self-modifying"),
      h("p", { id: "self-modifying-help", class: "help" }, "It may change its own code or instructions."),
    ),
    h("h2", {}, "3. Sign"),
    h(
      "p",
      { class: "help" },
      "The wallet shows a request to the registry that moves no money. It is good for an hour.",
    ),
    submit,
    result,
  );

  let running = false;
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    if (running || !checkAll(Object.values(inputs))) return;
    if (creator === undefined) {
      replace(result, failed("Connect a wallet first: the creator signs the registration."));
      return;
    }
    const { relayerUrl } = settings();
    if (relayerUrl === "") {
      replace(
        result,
        failed(["Set a relayer URL in the ", h("a", { href: hrefTo(["settings"]) }, "settings"), " first."]),
      );
      return;
    }
    running = true;
    submit.setAttribute("aria-disabled", "true");
    const { wallet, account } = creator;
    const registration = {
      haftungsperson: inputs.haftungsperson.value(),
      agentWallet: inputs.agentWallet.value(),
      constitutionHash: inputs.constitutionHash.value(),
      capabilityHash: inputs.capabilityHash.value(),
      operationalScope: inputs.scope.input.value,
      parentAgentId: inputs.parent.value() || "0",
      selfModifying: selfModifying.checked,
    };
    const at = (step: number, detail?: string): void => replace(result, progress(step, detail));
    carryOut(scope, relayerUrl, wallet.provider, account, registration, at)
      .then(({ id, isSeen, transaction }) => replace(result, done(id, isSeen, transaction)))
      .catch((error: unknown) => {
        if (!scope.signal.aborted) replace(result, failed(reason(error)));
      })
      .finally(() => {
        running = false;
        submit.removeAttribute("aria-disabled");
      });
  });
  return element;
}

function fields(
  scope: Scope,
): Record<"haftungsperson" | "agentWallet" | "constitutionHash" | "capabilityHash" | "scope" | "parent", Field> {
  return {
    haftungsperson: field({
      id: "haftungsperson",
      label: "Liable person (Haftungsperson)",
      placeholder: "0x",
      help: "The wallet of whoever answers for what the agent does.",
      rule: addressRule,
    }),
    agentWallet: field({
      id: "agent-wallet",
      label: "Agent wallet",
      placeholder: "0x",
      help: "The agent's own. One wallet belongs to one agent.",
      rule: addressRule,
    }),
    constitutionHash: hashField(
      scope,
      "constitution-hash",
      "Constitution hash",
      "Of the document that says what the agent may and may not do.",
    ),
    capabilityHash: hashField(scope, "capability-hash", "Capability hash", "Of the document that says what it can do."),
    scope: field({
      id: "operational-scope",
      label: "Operational scope",
      lines: 3,
      help: "What it works on, in a sentence. Public for good.",
    }),
    parent: field({
      id: "parent-agent-id",
      label: "Parent agent id",
      placeholder: "0",
      help: "The Active agent that made this one. Empty or 0: none.",
      rule: optional((text) => (/^\d{1,78}$/.test(text) ? undefined : "must be a whole number")),
    }),
  };
}

/** A hash, or a text to make it of. */
function hashField(scope: Scope, id: string, label: string, help: string): Field {
  const text = h("textarea", { id: `${id}-text`, rows: 3, spellcheck: "false", dir: "auto" });
  const maker = h(
    "details",
    { class: "hash-maker" },
    h("summary", {}, "Hash a text"),
    h("label", { for: `${id}-text` }, `Text for the ${label.toLowerCase()} (keccak-256 of its UTF-8)`),
    text,
  );
  const made = field({ id, label, placeholder: "0x", help: [help], rule: hashRule });
  const outcome = h("div", {});
  text.addEventListener("input", () => {
    core().then(
      ({ keccak256 }) => {
        if (!scope.signal.aborted) made.input.value = text.value === "" ? "" : keccak256(text.value);
      },
      (error: unknown) =>
        replace(outcome, h("p", { class: "fault", role: "alert" }, `The text cannot be hashed: ${reason(error)}`)),
    );
  });
  maker.append(outcome);
  made.element.append(maker);
  return made;
}

function connector(scope: Scope, connected: (creator: Creator) => void): HTMLElement {
  const button = h("button", { type: "button" }, "Connect wallet");
  const outcome = h("div", { "aria-live": "polite", class: "connected" }, h("p", { class: "muted" }, "Not connected."));
  const known = wallets();
  const select = h(
    "select",
    { id: "wallet" },
    known.map(({ name }, index) => h("option", { value: index }, name)),
  );
  button.addEventListener("click", () => {
    const now = wallets();
    const wallet = now[Number(select.value) || 0] ?? now[0];
    if (wallet === undefined) {
      replace(
        outcome,
        h(
          "p",
          { role: "alert", class: "fault" },
          "This browser has no wallet. Install one, or open this page in a wallet's own browser.",
        ),
      );
      return;
    }
    connect(wallet.provider)
      .then((account) => {
        connected({ wallet, account });
        if (!scope.signal.aborted) replace(outcome, h("p", {}, "Creator ", copyable(account)));
      })
      .catch((error: unknown) => replace(outcome, h("p", { role: "alert", class: "fault" }, reason(error))));
  });
  return h(
    "div",
    {},
    h(
      "div",
      { class: "verification-row" },
      button,
      known.length > 1 && h("div", { class: "field inline" }, h("label", { for: "wallet" }, "Wallet"), select),
    ),
    outcome,
  );
}

function reason(error: unknown): string {
  if (error instanceof ServiceError) return `Relayer: ${sentence(error)}`;
  return error instanceof Stopped || error instanceof Error ? error.message : String(error);
}

function progress(step: number, detail?: string): HTMLElement {
  return h(
    "div",
    { class: "result", "data-registration": "pending" },
    h(
      "ol",
      { class: "steps" },
      STEPS.map((text, index) =>
        h(
          "li",
          {
            "data-step": index < step ? "done" : index === step ? "now" : "later",
            "aria-current": index === step ? "step" : undefined,
          },
          text,
        ),
      ),
    ),
    detail !== undefined && h("p", { class: "muted" }, "Request ", hex(detail)),
  );
}

function done(id: Parameters<typeof agentLink>[0], isSeen: boolean, transaction: string): HTMLElement {
  return h(
    "div",
    { class: "result", "data-registration": "done" },
    h("p", {}, h("strong", {}, "Registered."), " It is ", agentLink(id), "."),
    !isSeen && h("p", {}, "The API has not shown it yet; it will."),
    h("p", { class: "muted" }, "Transaction ", copyable(transaction, hex(transaction), "transaction")),
    h("p", { class: "muted" }, "A verdict on its wallet that was asked for before is kept for up to a minute."),
  );
}

function failed(text: Child): HTMLElement {
  return h(
    "div",
    { class: "result", "data-registration": "error", role: "alert" },
    h("p", {}, h("strong", {}, "Not registered.")),
    h("p", {}, text),
  );
}
