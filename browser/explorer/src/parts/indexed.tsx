/** The note on an answer from the index, which the chain cannot give in one request. */

import type { ComponentChildren } from "preact";

import type { IndexedAt, Integer } from "../documents";
import { whole } from "../format";
import { Time } from "./moment";

export interface IndexedProps {
  asOf: IndexedAt;
  /** Agents that the index cannot read, and that are missing above. */
  unreadable?: Integer[] | undefined;
  /** How to verify what is shown. */
  children: ComponentChildren;
}

export function Indexed({ asOf, unreadable = [], children }: IndexedProps) {
  return (
    <p class="muted">
      From this server's index, as of block {whole(asOf.blockNumber)}, <Time at={asOf.blockTimestamp} />. {children}
      {unreadable.length > 0 &&
        ` ${whole(unreadable.length)} of the registry's agents cannot be read, and are not counted.`}
    </p>
  );
}
