/** "Verify against the chain": the same question, answered by the core in this page from the visitor's own source. */

import type { ComponentChildren, VNode } from "preact";
import { useId, useState } from "preact/hooks";

import { ServiceError, type Answer } from "../api";
import { core, registryOfApi, sources, statusOf, type Source } from "../chain";
import { compare } from "../compare";
import { sentences } from "../format";
import { parse } from "../json";
import { hrefTo } from "../router";
import { settings } from "../settings";
import { refusal } from "../wallets";
import { ComparisonReport, type Compared } from "./comparisonReport";
import { sentence } from "./failure";
import { Inquiry, Unanswered } from "./inquiry";
import { Proof } from "./proof";

/** The button, what comes of it, and for a verdict the means to prove it. */
export function Verification({ answers }: { answers: Answer[] }) {
  const available = sources();
  const [chosen, setChosen] = useState(0);
  const id = useId();
  const ask = (signal: AbortSignal): Promise<VNode> => {
    const now = sources();
    return verify(answers, now[chosen] ?? now[0], signal);
  };
  return (
    <section class="verification" aria-label="Verification">
      <Inquiry
        label="Verify against the chain"
        asking="Asking the chain…"
        ask={ask}
        help="Asks the chain itself, from this page and without this server, and compares every field."
      >
        {available.length > 1 && (
          <div class="field inline">
            <label for={id}>From</label>
            <select id={id} value={chosen} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
              {available.map(({ name }, index) => (
                <option key={index} value={index}>
                  {name}
                </option>
              ))}
            </select>
          </div>
        )}
        {available.length === 1 && <span class="muted">from {available[0]?.name}</span>}
      </Inquiry>
      {answers.map(({ path }) => (
        <Proof key={path} path={path} />
      ))}
    </section>
  );
}

async function verify(answers: Answer[], source: Source | undefined, signal: AbortSignal): Promise<VNode> {
  if (source === undefined) {
    return (
      <NotVerified>
        No source to verify with: set an RPC URL in the <a href={hrefTo(["settings"])}>settings</a>, or use a browser
        with a wallet.
      </NotVerified>
    );
  }
  try {
    const trusted = settings().registry;
    const [{ Registry }, named] = await Promise.all([core(), registryOfApi(signal)]);
    const registry = new Registry({ rpc: source.rpc, registry: trusted || named });
    const compared = await Promise.all(answers.map((answer) => against(registry, answer)));
    const isOther = trusted !== "" && trusted.toLowerCase() !== named.toLowerCase();
    return (
      <ComparisonReport
        compared={compared}
        source={source}
        registry={trusted || named}
        isTrusted={trusted !== ""}
        otherRegistry={isOther ? named : undefined}
      />
    );
  } catch (error) {
    return <NotVerified>{explain(error, source)}</NotVerified>;
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

function NotVerified({ children }: { children: ComponentChildren }) {
  return (
    <Unanswered of="verify" title="Not verified.">
      {children}
    </Unanswered>
  );
}
