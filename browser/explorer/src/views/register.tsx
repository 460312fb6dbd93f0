/** "Register gaslessly": a form, a signature, and the relayer pays. */

import { useRef, useState } from "preact/hooks";

import { addressRule, hashRule, optional, trimmed, useForm } from "../form";
import { useSignal } from "../hooks";
import { Check } from "../parts/check";
import { Connector, type Signer } from "../parts/connector";
import { Field } from "../parts/field";
import { Form } from "../parts/form";
import { HashField } from "../parts/hashField";
import { Heading } from "../parts/heading";
import { RegistrationResult, type Progress } from "../parts/registrationResult";
import { register } from "../registration";
import { hrefTo } from "../router";
import { settings } from "../settings";
import { Unsettled } from "../settle";

export function RegisterView() {
  const { relayerUrl } = settings();
  return (
    <>
      <Heading title="Register gaslessly" />
      <p class="lead">
        An agent needs no ETH to register: its creator signs, a relayer carries the request to the chain and pays.
      </p>
      {relayerUrl === "" ? (
        <p class="note">
          No relayer is set. Name one in the <a href={hrefTo(["settings"])}>settings</a> first.
        </p>
      ) : (
        <p class="muted">Relayer: {relayerUrl}</p>
      )}
      <RegistrationForm relayerUrl={relayerUrl} />
    </>
  );
}

function RegistrationForm({ relayerUrl }: { relayerUrl: string }) {
  const signal = useSignal();
  const form = useForm(
    () => ({ haftungsperson: "", agentWallet: "", constitutionHash: "", capabilityHash: "", scope: "", parent: "" }),
    {
      haftungsperson: addressRule,
      agentWallet: addressRule,
      constitutionHash: hashRule,
      capabilityHash: hashRule,
      parent: optional((text) => (/^\d{1,78}$/.test(text) ? undefined : "must be a whole number")),
    },
  );
  const [selfModifying, setSelfModifying] = useState(false);
  const [creator, setCreator] = useState<Signer>();
  // The account that this form has filled in last as the agent's wallet.
  const filledIn = useRef("");
  const [progress, setProgress] = useState<Progress>();
  const isRunning = progress?.kind === "running";

  const submit = async (): Promise<void> => {
    if (isRunning || !form.check()) return;
    if (creator === undefined) return setProgress({ kind: "no-wallet" });
    if (relayerUrl === "") return setProgress({ kind: "no-relayer" });
    const registration = {
      haftungsperson: form.text("haftungsperson"),
      agentWallet: form.text("agentWallet"),
      constitutionHash: form.text("constitutionHash"),
      capabilityHash: form.text("capabilityHash"),
      operationalScope: form.values.scope,
      parentAgentId: form.text("parent") || "0",
      selfModifying,
    };
    const tell = (next: Progress): void => {
      if (!signal.aborted) setProgress(next);
    };
    const at = (step: number, request?: string): void => tell({ kind: "running", step, request });
    const { wallet, account } = creator;
    try {
      tell({ kind: "done", ...(await register(signal, relayerUrl, wallet.provider, account, registration, at)) });
    } catch (error) {
      if (error instanceof Unsettled) tell({ kind: "unsettled", place: `${relayerUrl}/relay/${error.id}` });
      else tell({ kind: "failed", error });
    }
  };

  return (
    <Form class="form" onSubmit={() => void submit()}>
      <h2>1. Who registers</h2>
      <Connector
        who="Creator"
        onConnected={(connected) => {
          setCreator(connected);
          if (connected === undefined) return;
          form.fill("agentWallet", (before) => {
            const typed = trimmed(before);
            if (typed !== "" && typed !== filledIn.current) return typed;
            return (filledIn.current = connected.account);
          });
        }}
      />
      <h2>2. What is registered</h2>
      <Field
        {...form.bind("haftungsperson")}
        id="haftungsperson"
        label="Liable person (Haftungsperson)"
        placeholder="0x"
        help="The wallet of the person who answers for what the agent does."
      />
      <Field
        {...form.bind("agentWallet")}
        id="agent-wallet"
        label="Agent wallet"
        placeholder="0x"
        help="The agent's own. One wallet belongs to one agent."
      />
      <HashField
        {...form.bind("constitutionHash")}
        id="constitution-hash"
        label="Constitution hash"
        help="Of the document that says what the agent may and may not do."
      />
      <HashField
        {...form.bind("capabilityHash")}
        id="capability-hash"
        label="Capability hash"
        help="Of the document that says what it can do."
      />
      <Field
        {...form.bind("scope")}
        id="operational-scope"
        label="Operational scope"
        lines={3}
        help="What it works on, in a sentence. Public for good."
      />
      <Field
        {...form.bind("parent")}
        id="parent-agent-id"
        label="Parent agent id"
        placeholder="0"
        help="The Active agent that made this one. Empty or 0: none."
      />
      <Check
        id="self-modifying"
        label="Self-modifying"
        help="It may change its own code or instructions."
        checked={selfModifying}
        onChecked={setSelfModifying}
      />
      <h2>3. Sign</h2>
      <p class="help">The wallet shows a request to the registry that moves no money. It is good for an hour.</p>
      <button type="submit" class="primary" aria-disabled={isRunning || undefined}>
        Sign and register
      </button>
      <div aria-live="polite">{progress && <RegistrationResult progress={progress} />}</div>
    </Form>
  );
}
