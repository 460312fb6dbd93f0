/** An agent in a line: its id as a link, its status as a badge. */

import type { Integer, Status } from "../documents";
import { hrefTo } from "../router";

/** An agent's id that leads to its page. */
export function AgentLink({ id }: { id: Integer | string }) {
  return <a href={hrefTo(["agent", id])}>Agent {String(id)}</a>;
}

/** An agent's status, told by word and shape as well as by colour. */
export function Badge({ status }: { status: Status }) {
  return (
    <span class="badge" data-status={status}>
      {status}
    </span>
  );
}
