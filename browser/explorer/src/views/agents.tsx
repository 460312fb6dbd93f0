/** Lists of agents: searched, filtered and sorted as the address says. */

import { ServiceError } from "../api";
import type { AgentList, AgentPage } from "../documents";
import { counted, whole } from "../format";
import { askedOf, inChainOrder, isFiltered, isFirstPage, isOfChain, listHref, pathOf, type Asked } from "../listing";
import { AgentTable, COLUMNS } from "../parts/agentTable";
import { Answered } from "../parts/answer";
import { Failure } from "../parts/failure";
import { Heading } from "../parts/heading";
import { Indexed } from "../parts/indexed";
import { ListFilter } from "../parts/listFilter";
import { CursorPager, Pager } from "../parts/pager";
import { Skeleton } from "../parts/skeleton";
import type { Route } from "../router";

const { agent, status, compliant, registered, attested, wallet, creator, scope } = COLUMNS;

export function AgentsView({ route: { query } }: { route: Route }) {
  const asked = askedOf(query);
  return (
    <>
      <Heading title={asked.status === "" ? "Agents" : `Agents: ${asked.status}`}>Agents</Heading>
      <ListFilter asked={asked} />
      <Listing asked={asked} />
    </>
  );
}

function Listing({ asked }: { asked: Asked }) {
  if (isOfChain(asked)) return <ChainList asked={asked} />;
  return (
    <Answered<[AgentList]>
      paths={[pathOf(asked)]}
      verifiable={false}
      placeholder={<Skeleton lines={20} />}
      instead={(error) => needsIndex(error) && <WithoutIndex error={error} asked={asked} />}
    >
      {([{ document }]) => <IndexedList list={document} asked={asked} />}
    </Answered>
  );
}

function needsIndex(error: unknown): boolean {
  return error instanceof ServiceError && error.code === "INDEX_REQUIRED";
}

/** What can be shown without an index, and why it is not all. */
function WithoutIndex({ error, asked }: { error: unknown; asked: Asked }) {
  const inOrder = inChainOrder(asked);
  if (!isOfChain(inOrder)) {
    return (
      <>
        <Failure error={error} />
        <p>
          <a href={listHref({})}>All agents</a>
        </p>
      </>
    );
  }
  return (
    <>
      <p class="note">This server keeps no index of the registry: agents are listed by id, and cannot be searched.</p>
      <ChainList asked={inOrder} />
    </>
  );
}

/** From an index: its pages lead onwards, and stay where they are while the registry grows. */
function IndexedList({
  list: { data, total, totalIsLowerBound, next, asOf, unreadable },
  asked,
}: {
  list: AgentList;
  asked: Asked;
}) {
  const isFirst = isFirstPage(asked);
  const isByAttestation = asked.sort.endsWith("attestation");
  return (
    <>
      {total !== undefined && total !== null && (
        <p class="muted">
          {totalIsLowerBound && "At least "}
          {counted(total, "agent")}
          {asked.status !== "" && `, ${asked.status}`}
        </p>
      )}
      {data.length > 0 ? (
        <AgentTable
          caption="Agents"
          columns={[agent, status, compliant, isByAttestation ? attested : registered, wallet, scope]}
          agents={data}
        />
      ) : (
        <p class="empty">{emptyWords(asked)}</p>
      )}
      {(!isFirst || next) && (
        <CursorPager
          label="Agents"
          first={isFirst ? undefined : listHref({ ...asked, page: "", cursor: "" })}
          next={next ? listHref({ ...asked, page: "", cursor: next }) : undefined}
        />
      )}
      <Indexed asOf={asOf} unreadable={unreadable}>
        To verify an agent, go to its page.
      </Indexed>
    </>
  );
}

function emptyWords(asked: Asked): string {
  if (!isFirstPage(asked)) return "This page is beyond the end.";
  return isFiltered(asked) ? "No agent is like this." : "No agent has been registered yet.";
}

/** As the chain has it, page by page. */
function ChainList({ asked }: { asked: Asked }) {
  return (
    <Answered<[AgentPage]> paths={[pathOf(asked)]} placeholder={<Skeleton lines={20} />}>
      {([{ document }]) => <ChainPage page={document} asked={asked} />}
    </Answered>
  );
}

function ChainPage({ page: { data, total, page, totalPages }, asked }: { page: AgentPage; asked: Asked }) {
  const [at, last] = [BigInt(page), BigInt(totalPages)];
  const to = (number: bigint): string => listHref({ ...asked, page: number === 1n ? "" : String(number) });
  return (
    <>
      <p class="muted">
        {counted(total, "agent")}
        {asked.status !== "" && `, ${asked.status}`}
      </p>
      {data.length > 0 ? (
        <AgentTable caption="Agents" columns={[agent, status, registered, creator]} agents={data} />
      ) : (
        <p class="empty">{BigInt(total) === 0n ? "No agents." : "This page is beyond the end."}</p>
      )}
      <Pager
        label="Agents"
        shown={`Page ${whole(page)} of ${whole(totalPages)}`}
        previous={at > 1n ? to(at > last ? (last > 0n ? last : 1n) : at - 1n) : undefined}
        next={at < last ? to(at + 1n) : undefined}
      />
    </>
  );
}
