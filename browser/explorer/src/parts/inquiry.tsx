/** A button that sends a request, and the outcome. */

import type { ComponentChildren, VNode } from "preact";
import { useState } from "preact/hooks";

import { useSignal } from "../hooks";

export interface InquiryProps {
  label: string;
  /** The placeholder of the outcome while the request runs. */
  asking: string;
  /** Sends the request and shows the outcome. It throws nothing. */
  ask: (signal: AbortSignal) => Promise<VNode>;
  /** The request, in a sentence. */
  help: string;
  /** The content beside the button. */
  children?: ComponentChildren;
}

/** While the request runs, further clicks do nothing. */
export function Inquiry({ label, asking, ask, help, children }: InquiryProps) {
  const signal = useSignal();
  const [isAsking, setAsking] = useState(false);
  const [outcome, setOutcome] = useState<VNode>();
  const start = async (): Promise<void> => {
    if (isAsking) return;
    setAsking(true);
    const next = await ask(signal);
    if (signal.aborted) return;
    setOutcome(next);
    setAsking(false);
  };
  return (
    <>
      <div class="verification-row">
        <button type="button" aria-disabled={isAsking || undefined} onClick={() => void start()}>
          {label}
        </button>
        {children}
      </div>
      <p class="help">{help}</p>
      <div aria-live="polite">{isAsking ? <p class="muted">{asking}</p> : outcome}</div>
    </>
  );
}

/** The outcome of a failed request; `of` names the inquiry. */
export function Unanswered({
  of,
  title,
  children,
}: {
  of: "proof" | "verify";
  title: string;
  children: ComponentChildren;
}) {
  return (
    <div class="result" role="alert" {...{ [`data-${of}`]: "error" }}>
      <p>
        <strong>{title}</strong>
      </p>
      <p>{children}</p>
    </div>
  );
}
