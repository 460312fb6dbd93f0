/** The progress of a registration, and its outcome. */

import type { ComponentChildren } from "preact";

import { ServiceError } from "../api";
import type { Integer } from "../documents";
import { STEPS } from "../registration";
import { hrefTo } from "../router";
import { Copyable, Hex } from "./address";
import { AgentLink } from "./agent";
import { sentence } from "./failure";

/**
 * A registration that was begun. `no-wallet` and `no-relayer` ask for what is missing; `running` ends in `done`, in `failed`, or in
 * `unsettled`, where it was sent and may have been carried out; each may be followed by another try.
 */
export type Progress =
  | { kind: "no-wallet" }
  | { kind: "no-relayer" }
  | { kind: "running"; step: number; request: string | undefined }
  | { kind: "done"; id: Integer; isSeen: boolean; transaction: string }
  | { kind: "failed"; error: unknown }
  | { kind: "unsettled"; place: string };

export function RegistrationResult({ progress }: { progress: Progress }) {
  switch (progress.kind) {
    case "no-wallet":
      return <NotRegistered>Connect a wallet first: the creator signs the registration.</NotRegistered>;
    case "no-relayer":
      return (
        <NotRegistered>
          Set a relayer URL in the <a href={hrefTo(["settings"])}>settings</a> first.
        </NotRegistered>
      );
    case "running":
      return <Steps {...progress} />;
    case "done":
      return <Registered {...progress} />;
    case "failed":
      return <NotRegistered>{reason(progress.error)}</NotRegistered>;
    case "unsettled":
      return <NotSettled {...progress} />;
  }
}

/** Why something was not done, in words: the relayer's or the wallet's. */
export function reason(error: unknown): string {
  if (error instanceof ServiceError) return `Relayer: ${sentence(error)}`;
  return error instanceof Error ? error.message : String(error);
}

function Steps({ step, request }: { step: number; request: string | undefined }) {
  return (
    <div class="result" data-registration="pending">
      <ol class="steps">
        {STEPS.map((text, index) => (
          <li
            key={text}
            data-step={index < step ? "done" : index === step ? "now" : "later"}
            aria-current={index === step ? "step" : undefined}
          >
            {text}
          </li>
        ))}
      </ol>
      {request !== undefined && (
        <p class="muted">
          Request <Hex text={request} />
        </p>
      )}
    </div>
  );
}

function Registered({ id, isSeen, transaction }: { id: Integer; isSeen: boolean; transaction: string }) {
  return (
    <div class="result" data-registration="done">
      <p>
        <strong>Registered.</strong> It is <AgentLink id={id} />.
      </p>
      {!isSeen && <p>The API has not shown it yet; it will.</p>}
      <p class="muted">
        Transaction <Copyable text={transaction} what="transaction" />
      </p>
      <p class="muted">A verdict on its wallet that was asked for before is kept for up to a minute.</p>
    </div>
  );
}

function NotSettled({ place }: { place: string }) {
  return (
    <div class="result" data-registration="unsettled" role="alert">
      <p>
        <strong>Sent, and not settled.</strong>
      </p>
      <p>
        The relayer has not said whether it was carried out. Before you sign again, see{" "}
        <a href={place} rel="noreferrer">
          {place}
        </a>
      </p>
    </div>
  );
}

function NotRegistered({ children }: { children: ComponentChildren }) {
  return (
    <div class="result" data-registration="error" role="alert">
      <p>
        <strong>Not registered.</strong>
      </p>
      <p>{children}</p>
    </div>
  );
}
