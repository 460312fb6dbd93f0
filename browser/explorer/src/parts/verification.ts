/** "Verify against the chain": the same question, answered by the core in this page from the visitor's own source. */

import { hostOf, ServiceError, type Answer } from "../api";
import { core, registryOfApi, sources, statusOf, type Source } from "../chain";
import { compare, type Field } from "../compare";
import { freshId, h, type Child } from "../dom";
import { counted, duration, sentences } from "../format";
import { parse } from "../json";
import { hrefTo } from "../router";
import type { Scope } from "../viewLifetime";
import { settings } from "../settings";
import { refusal } from "../wallets";
import { hex, table } from "./facts";
import { sentence } from "./failure";
import { inquiry, unanswered } from "./inquiry";
import { proof } from "./proof";
import { chainText, chainWord } from "./text";

/** The fields of one answer. */
interface Compared {
  path: string;
  fields: Field[];
  /** The chain's own refusal, where it has no answer at all. */
  refused?: string;
  ageSeconds: number;
}

/** The button, and below it room for what comes of it. */
export function verification(scope: Scope, answers: Answer[]): HTMLElement {
  const available = sources();
  const id = freshId("source");
  const select = h(
    "select",
    { id },
    available.map(({ name }, index) => h("option", { value: index }, name)),
  );
  const { button, result } = inquiry(scope, "Verify against the chain", "Asking the chain…", () => {
    const now = sources();
    return verify(scope, answers, now[Number(select.value) || 0] ?? now[0]);
  });

  return h(
    "section",
    { class: "verification", "aria-label": "Verification" },
    h(
      "div",
      { class: "verification-row" },
      button,
      available.length > 1 && h("div", { class: "field inline" }, h("label", { for: id }, "From"), select),
      available.length === 1 && h("span", { class: "muted" }, "from ", available[0]?.name),
    ),
    h(
      "p",
      { class: "help" },
      "Asks the chain itself, from this page and without this server, and compares every field.",
    ),
    result,
    answers.map(({ path }) => proof(scope, path)),
  );
}

async function verify(scope: Scope, answers: Answer[], source: Source | undefined): Promise<HTMLElement> {
  if (source === undefined) {
    return failed([
      "No source to verify with: set an RPC URL in the ",
      h("a", { href: hrefTo(["settings"]) }, "settings"),
      ", or use a browser with a wallet.",
    ]);
  }
  try {
    const trusted = settings().registry;
    const [{ Registry }, named] = await Promise.all([core(), registryOfApi(scope.signal)]);
    const registry = new Registry({ rpc: source.rpc, registry: trusted || named });
    const compared = await Promise.all(answers.map((answer) => against(registry, answer)));
    const isOther = trusted !== "" && trusted.toLowerCase() !== named.toLowerCase();
    return report(compared, source, {
      registry: trusted || named,
      isTrusted: trusted !== "",
      api: isOther ? named : undefined,
    });
  } catch (error) {
    return failed([explain(error, source)]);
  }
}

async function against(registry: { getText(path: string): Promise<string> }, answer: Answer): Promise<Compared> {
  const { path, text, ageSeconds } = answer;
  try {
    return { path, ageSeconds, fields: compare(parse(text), parse(await registry.getText(path))) };
  } catch (error) {
    // A chain that answers "there is no such agent" has answered, and differs.
    if (statusOf(error) !== 404 || !(error instanceof Error)) throw error;
    return { path, ageSeconds, fields: [], refused: error.message };
  }
}

function explain(error: unknown, { name, rpc }: Source): string {
  if (error instanceof ServiceError) return sentence(error);
  const { cause } = error instanceof Error ? error : {};
  if (cause !== undefined && typeof rpc !== "string") return refusal(cause);
  const message = error instanceof Error ? error.message : String(error);
  return statusOf(error) === 0
    ? sentences(`The verifier could not run: ${message}`)
    : sentences(`${name} gave no answer: ${message}`, "Is it on the registry's chain?");
}

function failed(text: Child[]): HTMLElement {
  return unanswered("data-verify", "Not verified.", text);
}

interface Asked {
  registry: string;
  isTrusted: boolean;
  /** The API's registry, where it is another than the visitor's. */
  api: string | undefined;
}

function report(compared: Compared[], source: Source, asked: Asked): HTMLElement {
  const fields = compared.flatMap(({ fields }) => fields);
  const of = (outcome: Field["outcome"]): number => fields.filter((field) => field.outcome === outcome).length;
  const refused = compared.filter(({ refused }) => refused !== undefined);
  const isAgreement = of("differ") === 0 && refused.length === 0 && asked.api === undefined;
  const age = Math.max(...compared.map(({ ageSeconds }) => ageSeconds));
  const origin = typeof source.rpc === "string" ? hostOf(source.rpc) : source.name;
  return h(
    "div",
    { class: "result", "data-verify": isAgreement ? "agreement" : "difference" },
    h(
      "p",
      {},
      h("strong", {}, isAgreement ? "Agreement." : "Difference."),
      isAgreement
        ? ` The chain gives the same answer: ${counted(of("agree"), "field")} compared.`
        : ` ${counted(of("differ"), "field differs", "fields differ")}, ${of("agree")} agree.`,
    ),
    !isAgreement &&
      age > 0 &&
      h("p", {}, `The API read its answer ${duration(age)} ago. What has happened since is a difference too.`),
    asked.api !== undefined && h("p", {}, "The API names another registry than your settings: ", hex(asked.api)),
    refused.map(({ path, refused }) => h("p", {}, h("code", {}, path), ": the chain says ", h("q", {}, refused))),
    compared.map(({ path, fields }) =>
      differences(
        path,
        fields.filter(({ outcome }) => outcome === "differ"),
      ),
    ),
    of("moving") > 0 &&
      h(
        "details",
        {},
        h("summary", {}, `${counted(of("moving"), "field")} not compared: clocks and endpoints`),
        compared.map(({ path, fields }) =>
          differences(
            path,
            fields.filter(({ outcome }) => outcome === "moving"),
          ),
        ),
      ),
    h(
      "p",
      { class: "muted" },
      "Asked ",
      origin,
      " about registry ",
      hex(asked.registry),
      asked.isTrusted ? ", as in your settings." : ", as the API names it.",
    ),
  );
}

function differences(path: string, fields: Field[]): Child {
  if (fields.length === 0) return false;
  const side = (text: string | undefined): Child => (text === undefined ? h("em", {}, "absent") : chainText(text));
  return [
    h("p", {}, h("code", {}, path)),
    table(
      `Fields of ${path}`,
      ["Field", "The API says", "The chain says"],
      fields.map(({ path, api, chain }) => [chainWord(path), side(api), side(chain)]),
    ),
  ];
}
