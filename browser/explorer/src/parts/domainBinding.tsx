/** The domain that stands behind a liable wallet, as far as both say so. The reader names the domain: a registry knows none. */

import type { VNode } from "preact";
import { useState } from "preact/hooks";

import { ServiceError } from "../api";
import type { Address } from "../documents";
import { askDomain, type DomainAnswer } from "../domain";
import { useForm, type Rule } from "../form";
import { sentences } from "../format";
import { useSignal } from "../hooks";
import { AgentLink } from "./agent";
import { sentence } from "./failure";
import { Fact, Facts } from "./facts";
import { Field } from "./field";
import { Form } from "./form";
import { Time } from "./moment";

/** Ids shown of those that a domain disowns. */
const DISOWNED = 24;

export function DomainBinding({ person }: { person: Address }) {
  const signal = useSignal();
  const form = useForm(() => ({ domain: "" }), { domain: domainRule });
  const [isAsking, setAsking] = useState(false);
  const [outcome, setOutcome] = useState<VNode>();
  const submit = async (): Promise<void> => {
    if (isAsking || !form.check()) return;
    setAsking(true);
    const domain = form.text("domain").toLowerCase();
    const next = await askDomain(domain, person, signal).then(
      (answer) => <Answered answer={answer} />,
      (error: unknown) => <Unanswered domain={domain} error={error} />,
    );
    if (signal.aborted) return;
    setOutcome(next);
    setAsking(false);
  };
  return (
    <section>
      <h2>A domain behind it</h2>
      <Form class="form" onSubmit={() => void submit()}>
        <Field
          {...form.bind("domain")}
          id="domain"
          label="Domain"
          placeholder="acme.example"
          help="One that you know to be the person's. This page asks it for its file of liable wallets."
        />
        <button type="submit" aria-disabled={isAsking || undefined}>
          Ask the domain
        </button>
        <div aria-live="polite">{isAsking ? <p class="muted">Asking…</p> : outcome}</div>
      </Form>
    </section>
  );
}

const domainRule: Rule = (text) =>
  /^[a-z0-9-]+(\.[a-z0-9-]+)+$/i.test(text) ? undefined : "must be a domain name, such as acme.example, without a port";

/** What keeps a binding from holding. */
const PROBLEMS: Record<string, string> = {
  signature: "the signature that it shows is not this wallet's for this domain",
  time: "the wallet's signature is not valid now",
  notAfter: "the wallet's signature is for more than 366 days",
};

function Answered({ answer: { domain, wallet, notOurs } }: { answer: DomainAnswer }) {
  if (wallet === undefined)
    return (
      <p class="result" data-domain="absent">
        <strong>{domain}</strong> does not name this wallet.
      </p>
    );
  const { problem, legalName, lei, notAfter } = wallet;
  if (problem !== undefined)
    return (
      <p class="result" data-domain="unproved">
        <strong>{domain}</strong> names this wallet, but {PROBLEMS[problem] ?? problem}. It proves nothing.
      </p>
    );
  return (
    <div class="result" data-domain="bound">
      <p>
        <strong>{domain}</strong> names this wallet, and the wallet has signed for <strong>{domain}</strong>, until{" "}
        <Time at={new Date(notAfter * 1_000).toISOString()} />.
      </p>
      <Facts>
        {legalName !== undefined && <Fact term="Legal name, as the domain claims">{legalName}</Fact>}
        {lei !== undefined && <Fact term="LEI, as the domain claims">{lei}</Fact>}
        {notOurs.length > 0 && (
          <Fact term="Agents that it says are not its own">
            <ul class="chips">
              {notOurs.slice(0, DISOWNED).map((id) => (
                <li key={id}>
                  <AgentLink id={id} />
                </li>
              ))}
            </ul>
            {notOurs.length > DISOWNED && `and ${notOurs.length - DISOWNED} more`}
          </Fact>
        )}
      </Facts>
    </div>
  );
}

function Unanswered({ domain, error }: { domain: string; error: unknown }) {
  const message = error instanceof Error ? error.message : String(error);
  const text =
    error instanceof ServiceError
      ? sentence(error)
      : // `fetch` tells no reason.
        sentences(error instanceof TypeError ? `${domain} gives no such file to pages of other sites` : message);
  return (
    <p class="result fault" role="alert" data-domain="error">
      {text}
    </p>
  );
}
