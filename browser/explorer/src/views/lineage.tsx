/** An agent's descendants as a tree. */

import type { LineageNode } from "../documents";
import { counted } from "../format";
import { AgentLink } from "../parts/agent";
import { Answered } from "../parts/answer";
import { Heading } from "../parts/heading";
import { LineageTree } from "../parts/tree";
import type { Route } from "../router";

export function LineageView({ route }: { route: Route }) {
  const id = route.segments[1] ?? "";
  return (
    <>
      <Heading title={`Lineage of agent ${id}`} />
      <Answered<[LineageNode]> paths={[`/api/v1/agent/${encodeURIComponent(id)}/lineage`]} placeholder={<Waiting />}>
        {([{ document }]) => (
          <>
            <Summary root={document} />
            <LineageTree lineage={document} />
          </>
        )}
      </Answered>
    </>
  );
}

function Summary({ root }: { root: LineageNode }) {
  const { agents, levels, cut } = measure(root);
  return (
    <p>
      <AgentLink id={root.agentId} />
      {agents === 1 ? " has no children." : ` and ${counted(agents - 1, "descendant")} on ${counted(levels, "level")}.`}
      {cut > 0 && ` ${counted(cut, "agent has", "agents have")} more children than are shown.`}
    </p>
  );
}

/** As much room as a small tree takes. */
function Waiting() {
  return (
    <div class="tree">
      <p>Reading level by level…</p>
      <div class="tree-viewport waiting" />
    </div>
  );
}

function measure(root: LineageNode): { agents: number; levels: number; cut: number } {
  let [agents, levels, cut] = [0, 0, 0];
  const walk = (node: LineageNode, level: number): void => {
    agents += 1;
    levels = Math.max(levels, level);
    if (node.truncated) cut += 1;
    node.children.forEach((child) => walk(child, level + 1));
  };
  walk(root, 1);
  return { agents, levels, cut };
}
