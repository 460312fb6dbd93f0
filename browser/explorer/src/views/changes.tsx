/** Changes of verdicts as they come, the newest on top. */

import { useLayoutEffect, useReducer } from "preact/hooks";

import { reasonOf } from "../change";
import type { ChangeList, Change as Changed, Standing } from "../documents";
import { begin, MOST, step, type Feed, type Phase } from "../feed";
import { follow, type Heard } from "../follow";
import { counted, sentences } from "../format";
import { WalletLink } from "../parts/address";
import { AgentLink, Badge } from "../parts/agent";
import { BasisWord } from "../parts/agentTable";
import { announce } from "../parts/announcer";
import { Answered } from "../parts/answer";
import { Failure, sentence } from "../parts/failure";
import { Heading } from "../parts/heading";
import { Time } from "../parts/moment";
import { Skeleton } from "../parts/skeleton";
import { Table } from "../parts/table";
import { DECISIONS } from "../verdict";

export function ChangesView() {
  return (
    <>
      <Heading title="Changes" />
      <p class="lead">
        Registered, suspended, lapsed, attested again: every change of what a provider does about a wallet, and of what
        ties its liable wallet to it.
      </p>
      <Answered<[ChangeList]>
        paths={["/api/v1/changes?since=newest&limit=20"]}
        verifiable={false}
        placeholder={<Skeleton lines={6} />}
      >
        {([{ document }], again) => <Following list={document} again={again} />}
      </Answered>
    </>
  );
}

/** Shows the list, and follows from where it ends. `again` begins anew. */
function Following({ list, again }: { list: ChangeList; again: () => void }) {
  const [feed, dispatch] = useReducer(step, list, begin);
  const { phase, cursor } = feed;
  const isFollowing = phase.kind !== "paused" && phase.kind !== "ended";
  useLayoutEffect(() => {
    if (!isFollowing) return undefined;
    const controller = new AbortController();
    const tell = (heard: Heard): void => {
      if (heard.kind === "changes") announce(toldOf(heard.changes));
      dispatch(heard);
    };
    void follow(cursor, tell, controller.signal);
    return () => controller.abort();
  }, [isFollowing]);
  if (phase.kind === "ended") return <Failure error={phase.error} again={again} />;
  return (
    <>
      <div class="feed" data-feed={phase.kind}>
        <p class="feed-phase" role="status">
          {wordsOf(phase)}
        </p>
        <button type="button" onClick={() => dispatch({ kind: isFollowing ? "paused" : "resumed" })}>
          {isFollowing ? "Pause" : "Resume"}
        </button>
      </div>
      <Rows feed={feed} list={list} />
    </>
  );
}

function wordsOf(phase: Exclude<Phase, { kind: "ended" }>): string {
  switch (phase.kind) {
    case "connecting":
      return "Connecting…";
    case "live":
      return "Live: changes appear within seconds.";
    case "polling":
      return "Not live: this server is asked again as soon as its last answer is out of date.";
    case "interrupted":
      return sentences("Interrupted", sentence(phase.error), "It is asked again by itself");
    case "paused":
      return "Paused: what changes meanwhile appears when you resume.";
  }
}

/** What a screen reader hears of what has come. */
function toldOf(changes: Changed[]): string {
  const [first] = changes;
  if (first === undefined || changes.length > 1) return counted(changes.length, "change");
  return `Agent ${first.agentId}: ${reasonOf(first)}`;
}

function Rows({ feed: { changes, isCut }, list }: { feed: Feed; list: ChangeList }) {
  if (changes.length === 0) {
    return (
      <p class="empty">
        No changes yet, as of <Time at={list.asOf.blockTimestamp} />.
      </p>
    );
  }
  return (
    <>
      <Table
        caption="Changes"
        head={["Agent", "Change", "Before", "Now", "Time", "Wallet"]}
        rows={changes.map((change) => [
          <AgentLink id={change.agentId} />,
          reasonOf(change),
          <Verdict standing={change.from} />,
          <Verdict standing={change.to} />,
          <span class="exact">
            <Time at={change.time} />
          </span>,
          <WalletLink address={change.wallet} />,
        ])}
      />
      {isCut && <p class="note">The newest {MOST} are shown.</p>}
    </>
  );
}

/** Without this agent the wallet is as good as any that is not registered. */
function Verdict({ standing }: { standing: Standing | null }) {
  if (standing === null) return <span class="muted">Not registered</span>;
  return (
    <>
      <Badge status={standing.status} /> {DECISIONS[standing.decision]}{" "}
      {standing.basis !== undefined && <BasisWord basis={standing.basis} />}
    </>
  );
}
