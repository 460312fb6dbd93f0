/** A button that asks somebody something, and what comes of it. */

import type { ComponentChildren, VNode } from "preact";
import { useState } from "preact/hooks";

import { useSignal } from "../hooks";

export interface InquiryProps {
  label: string;
  /** What stands where the outcome will be, while it asks. */
  asking: string;
  /** Asks, and shows what came of it. It throws nothing. */
  ask: (signal: AbortSignal) => Promise<VNode>;
  /** What it asks for, in a sentence. */
  help: string;
  /** What stands beside the button. */
  children?: ComponentChildren;
}

/** While it asks, further clicks do nothing. */
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

/** The outcome where nothing came of it; `of` says of which inquiry. */
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
