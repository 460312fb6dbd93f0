/** Agents in a table, with the columns that an answer has and a view wants. */

import type { ComponentChildren } from "preact";

import type { Address, Integer, Liability, Status, Timestamp } from "../documents";
import { CreatorLink, PersonLink, WalletLink } from "./address";
import { AgentLink, Badge } from "./agent";
import { Ago, Time } from "./moment";
import { Table } from "./table";
import { ChainLine } from "./text";

/** A column: its heading, and its cell for an agent with the fields that it needs. */
export interface Column<Agent> {
  head: string;
  cell: (agent: Agent) => ComponentChildren;
}

/** What ties a liable wallet to an agent, in one word. */
export function BasisWord({ basis }: { basis: Liability["basis"] }) {
  return (
    <span class="basis" data-basis={basis}>
      {basis}
    </span>
  );
}

/** All columns, by name. */
export const COLUMNS = {
  agent: { head: "Agent", cell: ({ agentId }: { agentId: Integer }) => <AgentLink id={agentId} /> },
  status: { head: "Status", cell: ({ status }: { status: Status }) => <Badge status={status} /> },
  compliant: { head: "Compliant", cell: ({ isCompliant }: { isCompliant: boolean }) => (isCompliant ? "Yes" : "No") },
  basis: {
    head: "Basis",
    cell: ({ liability: { basis } }: { liability: Liability }) => <BasisWord basis={basis} />,
  },
  registered: {
    head: "Registered",
    cell: ({ registeredAt }: { registeredAt: Timestamp }) => <Time at={registeredAt} />,
  },
  age: { head: "Registered", cell: ({ registeredAt }: { registeredAt: Timestamp }) => <Ago since={registeredAt} /> },
  attested: {
    head: "Attested",
    cell: ({ lastAttestation }: { lastAttestation: Timestamp }) => <Time at={lastAttestation} />,
  },
  lapses: {
    head: "Current until",
    cell: ({ compliantUntil }: { compliantUntil: Timestamp }) => <Time at={compliantUntil} />,
  },
  wallet: { head: "Wallet", cell: ({ agentWallet }: { agentWallet: Address }) => <WalletLink address={agentWallet} /> },
  person: {
    head: "Liable",
    cell: ({ haftungsperson }: { haftungsperson: Address }) => <PersonLink address={haftungsperson} />,
  },
  creator: { head: "Creator", cell: ({ creator }: { creator: Address }) => <CreatorLink address={creator} /> },
  scope: {
    head: "Scope",
    cell: ({ operationalScope }: { operationalScope: string }) => <ChainLine text={operationalScope} />,
  },
} satisfies Record<string, Column<never>>;

export interface AgentTableProps<Agent> {
  /** For screen readers. */
  caption: string;
  columns: Column<Agent>[];
  agents: Agent[];
}

export function AgentTable<Agent>({ caption, columns, agents }: AgentTableProps<Agent>) {
  return (
    <Table
      caption={caption}
      head={columns.map(({ head }) => head)}
      rows={agents.map((agent) => columns.map(({ cell }) => cell(agent)))}
    />
  );
}
