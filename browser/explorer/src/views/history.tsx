/** What happened to an agent, the oldest first, on a line of time. */

import type { ComponentChildren } from "preact";

import type { Address, AgentHistory, HistoryEvent, IncompleteBecause } from "../documents";
import { units, whole } from "../format";
import { Copyable, CreatorLink, PersonLink, WalletLink } from "../parts/address";
import { AgentLink } from "../parts/agent";
import { Answered } from "../parts/answer";
import { Heading } from "../parts/heading";
import { Indexed } from "../parts/indexed";
import { Time } from "../parts/moment";
import { CursorPager } from "../parts/pager";
import { Skeleton } from "../parts/skeleton";
import { ChainText, ChainWord } from "../parts/text";
import { hrefTo, type Route } from "../router";

export function HistoryView({ route: { segments, query } }: { route: Route }) {
  const id = segments[1] ?? "";
  const cursor = query.get("cursor") ?? "";
  const path = `/api/v1/agent/${encodeURIComponent(id)}/history`;
  return (
    <>
      <Heading title={`History of agent ${id}`} />
      <Answered<[AgentHistory]>
        paths={[cursor === "" ? path : `${path}?cursor=${encodeURIComponent(cursor)}`]}
        verifiable={false}
        placeholder={<Skeleton lines={12} />}
      >
        {([{ document }]) => <History history={document} cursor={cursor} />}
      </Answered>
    </>
  );
}

function History({ history, cursor }: { history: AgentHistory; cursor: string }) {
  const { agentId, data, next, asOf } = history;
  const at = (cursor?: string): string => hrefTo(["agent", agentId, "history"], { cursor });
  return (
    <>
      <p>
        <AgentLink id={agentId} />
      </p>
      {!history.complete && <Incomplete history={history} />}
      {data.length > 0 ? (
        <ol class="timeline" aria-label="History">
          {data.map((event) => (
            <Moment key={`${event.blockNumber}-${event.logIndex}`} event={event} />
          ))}
        </ol>
      ) : (
        <p class="empty">{next ? "Nothing on this page; it goes on." : "No event is known."}</p>
      )}
      {(cursor !== "" || next) && (
        <CursorPager label="History" first={cursor === "" ? undefined : at()} next={next ? at(next) : undefined} />
      )}
      <Indexed asOf={asOf}>
        It is told by the registry's events, each in its transaction: to verify one, look the transaction up on the
        chain.
      </Indexed>
    </>
  );
}

/** Why something may be missing, in words. */
const BECAUSE: Record<IncompleteBecause, string> = {
  NO_LOGS: "the node that the server asks serves no events",
  LOG_RANGE: "the node that the server asks lists the events of few blocks at once",
  EVENTS_MISSING: "the node that the server asks has pruned events",
};

function Incomplete({ history: { incompleteBecause, fromBlock } }: { history: AgentHistory }) {
  const why = incompleteBecause ? BECAUSE[incompleteBecause] : "the server does not say why";
  return (
    <p class="incomplete" role="note">
      <strong>Incomplete</strong>, because {why}.
      {fromBlock !== undefined && fromBlock !== null && ` Events before block ${whole(fromBlock)} are not shown.`}
    </p>
  );
}

function Moment({ event }: { event: HistoryEvent }) {
  const { title, kind, children } = toldOf(event);
  return (
    <li data-event={kind}>
      <p class="timeline-head">
        <strong>{title}</strong> <Time at={event.time} />
      </p>
      {children}
      <p class="timeline-source muted">
        Block {whole(event.blockNumber)}, transaction <Copyable text={event.transactionHash} what="transaction" />
      </p>
    </li>
  );
}

interface Told {
  title: string;
  /** Good, a warning or an end, for the mark on the line. */
  kind: "good" | "warn" | "bad" | "idle" | "plain";
  children?: ComponentChildren;
}

/** An event in words. A regulator's reason is untrusted text, as all text from the chain. */
function toldOf(event: HistoryEvent): Told {
  switch (event.event) {
    case "registered":
      return {
        title: "Registered",
        kind: "good",
        children: (
          <p>
            By <CreatorLink address={event.creator} />, with <PersonLink address={event.haftungsperson} /> liable;{" "}
            {BigInt(event.parentAgentId) === 0n ? (
              "a root agent"
            ) : (
              <>
                a child of <AgentLink id={event.parentAgentId} />
              </>
            )}
          </p>
        ),
      };
    case "attested":
      return { title: "Attested", kind: "good", children: <By wallet={event.by} /> };
    case "revenueReported":
      return {
        title: "Revenue reported",
        kind: "plain",
        children: (
          <p>
            {units(event.amount)} <ChainWord text={event.currency} />, <ChainWord text={event.category} />
          </p>
        ),
      };
    case "suspended":
      return { title: "Suspended", kind: "warn", children: <Reason by={event.by} text={event.reason} /> };
    case "reactivated":
      return { title: "Active again", kind: "good", children: <By wallet={event.by} /> };
    case "revoked":
      return { title: "Revoked", kind: "bad", children: <Reason by={event.by} text={event.reason} /> };
    case "terminated":
      return { title: "Terminated", kind: "idle", children: <By wallet={event.by} /> };
    case "childRegistered":
      return {
        title: "Child registered",
        kind: "plain",
        children: (
          <p>
            <AgentLink id={event.childAgentId} />, by <CreatorLink address={event.creator} />
          </p>
        ),
      };
  }
}

function By({ wallet }: { wallet: Address }) {
  return (
    <p>
      By <WalletLink address={wallet} />
    </p>
  );
}

function Reason({ by, text }: { by: Address; text: string }) {
  return (
    <>
      <By wallet={by} />
      <ChainText text={text} />
    </>
  );
}
