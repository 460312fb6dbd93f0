/** The visitor's own endpoints and the theme. A link may fill the form in, but only the visitor saves it. */

import { h, replace } from "../dom";
import { addressRule, checkAll, field, optional } from "../parts/field";
import { chooseTheme, save, settings as stored, theme, urlFault, type Theme } from "../settings";
import { heading, type Draw } from "../view";

const THEMES: [Theme, string][] = [
  ["system", "System"],
  ["light", "Light"],
  ["dark", "Dark"],
];

export const settings: Draw = (_scope, { query }) => {
  const current = stored();
  const rpc = field({
    id: "rpc",
    label: "RPC URL",
    help: "A JSON-RPC endpoint of the registry's chain that you trust, and that web pages may ask (CORS). The API's answers are verified with it.",
    placeholder: "https://",
    value: query.get("rpc") ?? current.rpcUrl,
    rule: optional(urlFault),
  });
  const relayer = field({
    id: "relayer",
    label: "Relayer URL",
    help: "Where signed registrations go. The relayer pays for them.",
    placeholder: "https://",
    value: query.get("relayer") ?? current.relayerUrl,
    rule: optional(urlFault),
  });
  const registry = field({
    id: "registry",
    label: "Registry address",
    help: "The registry you know to be the right one. Left empty, the one the API names is believed.",
    placeholder: "0x",
    value: query.get("registry") ?? current.registry,
    rule: optional(addressRule),
  });
  const themes = h(
    "select",
    { id: "theme" },
    THEMES.map(([value, text]) => h("option", { value }, text)),
  );
  themes.value = theme();
  themes.addEventListener("change", () => chooseTheme(themes.value as Theme));

  const outcome = h("div", { class: "outcome" });
  const form = h(
    "form",
    { class: "form", novalidate: true },
    ["rpc", "relayer", "registry"].some((name) => query.has(name)) &&
      h("p", { class: "note" }, "Filled in by the link you followed. Nothing is kept until you save."),
    rpc.element,
    relayer.element,
    registry.element,
    h("div", { class: "field" }, h("label", { for: "theme" }, "Theme"), themes),
    h("button", { type: "submit", class: "primary" }, "Save settings"),
    outcome,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    replace(outcome);
    if (!checkAll([rpc, relayer, registry])) return;
    const kept = save({
      rpcUrl: rpc.value(),
      relayerUrl: relayer.value().replace(/\/+$/, ""),
      registry: registry.value(),
    });
    replace(
      outcome,
      kept
        ? h("p", { role: "status", class: "good" }, "Saved in this browser.")
        : h("p", { role: "alert" }, "This browser does not let the page keep anything: its storage is switched off."),
    );
  });
  return {
    title: "Settings",
    body: [
      heading("Settings"),
      h("p", { class: "lead" }, "Kept in this browser, and used for nothing but to reach these services."),
      form,
    ],
  };
};
