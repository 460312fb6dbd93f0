/** A part of a view that shows an answer: its room while it loads, the answer, or why there is none. */

import { Fragment, type ComponentChildren } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";

import { ask, type Answer } from "../api";
import { Boundary } from "./boundary";
import { Failure } from "./failure";
import { Skeleton } from "./skeleton";
import { Verification } from "./verification";

/** Answers to several questions, in their order. */
export type Answers<Documents extends unknown[]> = { [Index in keyof Documents]: Answer<Documents[Index]> };

export interface AnsweredProps<Documents extends unknown[]> {
  paths: { [Index in keyof Documents]: string };
  /** Whether the chain can be asked the same; if not said, it can. */
  verifiable?: boolean;
  /** The placeholder until the first answer. */
  placeholder?: ComponentChildren;
  /** Another explanation of this error than the usual one. */
  instead?: (error: unknown) => ComponentChildren;
  /** What the answers look like. `again` asks anew, and shows what comes. */
  children: (answers: Answers<Documents>, again: () => void) => ComponentChildren;
}

/** Asks for all paths at once and shows the answers, with the means to verify them below where there are any. Other paths are asked afresh. */
export function Answered<Documents extends unknown[]>(props: AnsweredProps<Documents>) {
  return <Asked key={props.paths.join(" ")} {...props} />;
}

/** The outcome of one round of requests. */
type Outcome<Documents extends unknown[]> = { round: number } & ({ answers: Answers<Documents> } | { error: unknown });

function Asked<Documents extends unknown[]>({
  paths,
  verifiable = true,
  placeholder,
  instead,
  children,
}: AnsweredProps<Documents>) {
  const [round, setRound] = useState(0);
  const [outcome, setOutcome] = useState<Outcome<Documents>>();
  const again = (): void => setRound((last) => last + 1);
  // Before the first paint, which nothing here depends on. Leaving ends the requests.
  useLayoutEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    const end = (outcome: Outcome<Documents>): void => {
      if (!signal.aborted) setOutcome(outcome);
    };
    Promise.all(paths.map((path) => ask(path, signal))).then(
      (answers) => end({ round, answers: answers as Answers<Documents> }),
      (error: unknown) => end({ round, error }),
    );
    return () => controller.abort();
  }, [round]);

  return (
    <div class="answer" aria-busy={outcome?.round !== round}>
      {/* What each round brings is shown from the beginning: no verification of the last answer beside this one. */}
      <Fragment key={outcome?.round}>
        {outcome === undefined ? (
          (placeholder ?? <Skeleton lines={8} />)
        ) : "error" in outcome ? (
          instead?.(outcome.error) || <Failure error={outcome.error} again={again} />
        ) : (
          <Boundary again={again}>
            <Drawn draw={() => children(outcome.answers, again)} />
            {verifiable && <Verification answers={outcome.answers} />}
          </Boundary>
        )}
      </Fragment>
    </div>
  );
}

/** Renders below the error boundary, which does not catch what its own parent throws. */
function Drawn({ draw }: { draw: () => ComponentChildren }) {
  return <>{draw()}</>;
}
