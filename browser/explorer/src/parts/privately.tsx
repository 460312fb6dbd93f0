/** A verdict that the service is not asked for by the wallet: it learns a range of wallets, and the page says which. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";

import { ServiceError } from "../api";
import { local, statusOf } from "../chain";
import type { Kya, KyaRange } from "../documents";
import { hrefTo } from "../router";
import { Answered } from "./answer";
import { Failure } from "./failure";

export interface PrivatelyProps {
  address: string;
  placeholder: ComponentChildren;
  /** What the verdict looks like. `again` asks anew. */
  children: (kya: Kya, again: () => void) => ComponentChildren;
}

/** What is sent in place of the wallet, and how its verdict, if any, is found in the answer; or why neither is known. */
type Range = { path: string; verdictIn: (range: KyaRange) => Kya | undefined } | { error: unknown };

export function Privately({ address, placeholder, children }: PrivatelyProps) {
  const [round, setRound] = useState(0);
  const [range, setRange] = useState<Range>();
  useLayoutEffect(() => {
    const controller = new AbortController();
    rangeOf(address)
      .catch((error: unknown) => ({ error }))
      .then((found) => controller.signal.aborted || setRange(found));
    return () => controller.abort();
  }, [round]);
  if (range === undefined) {
    return (
      <div class="answer" aria-busy="true">
        {placeholder}
      </div>
    );
  }
  if ("error" in range) return <Failure error={range.error} again={() => setRound((last) => last + 1)} />;
  return (
    <Answered<[KyaRange]> paths={[range.path]} verifiable={false} placeholder={placeholder}>
      {([{ document }], again) => {
        const kya = range.verdictIn(document);
        return (
          <>
            {kya === undefined ? <OnlyOpenly /> : children(kya, again)}
            <p class="note" data-sent={range.path}>
              Asked privately. The service was sent <code>{range.path}</code>: that is a range of all possible wallets,
              of which {document.total} have or had an agent. Links from here ask for what they name.
            </p>
          </>
        );
      }}
    </Answered>
  );
}

/** In place of a verdict that no range has. */
function OnlyOpenly() {
  return (
    <div class="failure" role="alert">
      <h2>This wallet can only be asked for openly</h2>
      <p>
        What its agent says of itself is too long for a range. Without <em>Ask privately</em> in the{" "}
        <a href={hrefTo(["settings"])}>settings</a> the service is asked for this wallet by its address.
      </p>
    </div>
  );
}

/** A range of one digit: a longer prefix would be as private as the service's own word on how many agents there are. */
async function rangeOf(address: string): Promise<Range> {
  const module = await local();
  return {
    path: `/api/v1/kya/range/${refused(() => module.rangeOf(address, 0)).slice(0, 1)}`,
    verdictIn: (range) => {
      try {
        return module.verdictInRange(address, range);
      } catch (error) {
        // The range names the wallet without a verdict.
        if (statusOf(error) !== 503) throw error;
        return undefined;
      }
    },
  };
}

/** The core refuses what is no address, as the service would. */
function refused<T>(make: () => T): T {
  try {
    return make();
  } catch (error) {
    if (statusOf(error) !== 400) throw error;
    throw new ServiceError((error as Error).message, 400, "INVALID_PARAMETER", undefined);
  }
}
