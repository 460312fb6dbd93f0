/** "Ask as an agent": the visitor's wallet signs a request to a guarded service, and the page says what the gate made of it. */

import { useState } from "preact/hooks";

import { useForm } from "../form";
import { useSignal } from "../hooks";
import { Connector, type Signer } from "../parts/connector";
import { Field } from "../parts/field";
import { Form } from "../parts/form";
import { Heading } from "../parts/heading";
import { reason } from "../parts/registrationResult";
import { hrefTo } from "../router";
import { askAsAgent, webAddress, type GuardedAnswer } from "../signedRequest";

/** Asks for what is missing, or is on its way to `answered` or `failed`; each may be followed by another try. */
type Progress =
  | { kind: "no-wallet" }
  | { kind: "running" }
  | { kind: "answered"; answer: GuardedAnswer }
  | { kind: "failed"; error: unknown };

export function AskView() {
  return (
    <>
      <Heading title="Ask as an agent" />
      <p class="lead">
        Services behind a gate serve agents alone: the wallet signs the request, and the gate looks it up. Here is what
        it says to yours.
      </p>
      <AskForm />
    </>
  );
}

function AskForm() {
  const signal = useSignal();
  const form = useForm(() => ({ service: "" }), { service: serviceRule });
  const [signer, setSigner] = useState<Signer>();
  const [progress, setProgress] = useState<Progress>();
  const isRunning = progress?.kind === "running";

  const submit = async (): Promise<void> => {
    if (isRunning || !form.check()) return;
    if (signer === undefined) return setProgress({ kind: "no-wallet" });
    const tell = (next: Progress): void => {
      if (!signal.aborted) setProgress(next);
    };
    tell({ kind: "running" });
    try {
      const { wallet, account } = signer;
      tell({ kind: "answered", answer: await askAsAgent(signal, wallet.provider, account, form.text("service")) });
    } catch (error) {
      tell({ kind: "failed", error });
    }
  };

  return (
    <Form class="form" onSubmit={() => void submit()}>
      <Connector who="Wallet" onConnected={setSigner} />
      <Field
        {...form.bind("service")}
        id="service"
        label="Address at the service"
        placeholder="https://"
        help="It is asked with GET, once. The service has to let other sites ask it."
      />
      <p class="help">
        The wallet shows a message that names this address. It moves no money and is good for a minute.
      </p>
      <button type="submit" class="primary" aria-disabled={isRunning || undefined}>
        Sign and ask
      </button>
      <div aria-live="polite">{progress && <Outcome progress={progress} />}</div>
    </Form>
  );
}

function serviceRule(text: string): string | undefined {
  return webAddress(text) ? undefined : "must be an address that begins with https:// or http://";
}

function Outcome({ progress }: { progress: Progress }) {
  switch (progress.kind) {
    case "no-wallet":
      return <NotAsked text="Connect a wallet first: it signs the request." />;
    case "running":
      return (
        <p class="result" data-gate="pending">
          Waiting for the wallet and the service.
        </p>
      );
    case "failed":
      return <NotAsked text={reason(progress.error)} />;
    case "answered":
      return <Answered answer={progress.answer} />;
  }
}

function NotAsked({ text }: { text: string }) {
  return (
    <p class="result fault" role="alert" data-gate="error">
      {text}
    </p>
  );
}

function Answered({ answer: { status, reason: code, detail, decision, link, text } }: { answer: GuardedAnswer }) {
  if (status < 300) {
    return (
      <div class="result" data-gate="admitted">
        <h2>Admitted</h2>
        <p>The service answered {status}:</p>
        <pre>{text}</pre>
      </div>
    );
  }
  return (
    <div class="result" data-gate="refused">
      <h2>{code === undefined ? `The service answered ${status}` : "Refused"}</h2>
      <p>{detail ?? "It gave no reason."}</p>
      {code !== undefined && (
        <p class="muted">
          {status} <code>{code}</code>
          {decision !== undefined && <> ({decision})</>}
        </p>
      )}
      {decision === "deny" && (
        <p>
          This wallet is no agent's.{" "}
          {link ? <Onward link={link}>Register one</Onward> : <a href={hrefTo(["register"])}>Register one</a>}
        </p>
      )}
      {decision === "request_renewal" && link && (
        <p>
          This wallet's agent has to be renewed. <Onward link={link}>Renew it</Onward>
        </p>
      )}
    </div>
  );
}

/** A link that the service has chosen: it says where it leads. */
function Onward({ link, children }: { link: URL; children: string }) {
  return (
    <>
      <a href={link.href}>{children}</a> at {link.host}
    </>
  );
}
