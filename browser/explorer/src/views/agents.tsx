/** All agents, by page and status; both stand in the address. */

import { STATUSES, type AgentPage } from "../documents";
import { counted, whole } from "../format";
import { WalletLink } from "../parts/address";
import { AgentLink, Badge } from "../parts/agent";
import { Answered } from "../parts/answer";
import { Heading } from "../parts/heading";
import { Time } from "../parts/moment";
import { Pager } from "../parts/pager";
import { Select } from "../parts/select";
import { Skeleton } from "../parts/skeleton";
import { Table } from "../parts/table";
import { go, hrefTo, type Route } from "../router";

const SIZES = ["20", "50", "100"];
const DEFAULT_SIZE = "20";

/** What the address asks for; empty where it does not say. */
interface Asked {
  status: string;
  page: string;
  limit: string;
}

export function AgentsView({ route: { query } }: { route: Route }) {
  const of = (name: keyof Asked): string => query.get(name) ?? "";
  const asked: Asked = { status: of("status"), page: of("page"), limit: of("limit") };
  const parameters = new URLSearchParams(Object.entries(asked).filter(([, value]) => value !== ""));
  const path = parameters.size === 0 ? "/api/v1/agents" : `/api/v1/agents?${parameters}`;
  return (
    <>
      <Heading title={asked.status === "" ? "Agents" : `Agents: ${asked.status}`}>Agents</Heading>
      <Filter asked={asked} />
      <Answered<[AgentPage]> paths={[path]} placeholder={<Skeleton lines={20} />}>
        {([{ document }]) => <List page={document} asked={asked} />}
      </Answered>
    </>
  );
}

function Filter({ asked }: { asked: Asked }) {
  const apply = ({ status, limit }: Pick<Asked, "status" | "limit">): void =>
    go(hrefTo(["agents"], { status, limit: limit === DEFAULT_SIZE ? undefined : limit }));
  return (
    <div class="filter">
      <Select
        id="status"
        label="Status"
        options={[["", "All"], ...STATUSES.map((name): [string, string] => [name, name])]}
        value={asked.status}
        onValue={(status) => apply({ ...asked, status })}
      />
      <Select
        id="limit"
        label="Per page"
        options={SIZES.map((size) => [size, size])}
        value={asked.limit === "" ? DEFAULT_SIZE : asked.limit}
        onValue={(limit) => apply({ ...asked, limit })}
      />
    </div>
  );
}

function List({ page: { data, total, page, totalPages }, asked }: { page: AgentPage; asked: Asked }) {
  const [at, last] = [BigInt(page), BigInt(totalPages)];
  const to = (number: bigint): string =>
    hrefTo(["agents"], { status: asked.status, page: number === 1n ? undefined : number, limit: asked.limit });
  return (
    <>
      <p class="muted">
        {counted(total, "agent")}
        {asked.status !== "" && `, ${asked.status}`}
      </p>
      {data.length > 0 ? (
        <Table
          caption="Agents"
          head={["Agent", "Status", "Registered", "Creator"]}
          rows={data.map((agent) => [
            <AgentLink id={agent.agentId} />,
            <Badge status={agent.status} />,
            <Time at={agent.registeredAt} />,
            <WalletLink address={agent.creator} />,
          ])}
        />
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
