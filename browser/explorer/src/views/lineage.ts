/** An agent's descendants as a tree. */

import type { LineageNode } from "../documents";
import { h } from "../dom";
import { counted } from "../format";
import { answered } from "../parts/liveAnswer";
import { agentLink } from "../parts/facts";
import { lineageTree } from "../parts/tree";
import { heading, type Draw } from "../view";

export const lineage: Draw = (scope, { segments }) => {
  const id = segments[1] ?? "";
  return {
    title: `Lineage of agent ${id}`,
    body: [
      heading(`Lineage of agent ${id}`),
      answered<[LineageNode]>(
        scope,
        [`/api/v1/agent/${encodeURIComponent(id)}/lineage`],
        ([{ document }]) => {
          const { agents, levels, cut } = measure(document);
          return [
            h(
              "p",
              {},
              agentLink(document.agentId),
              agents === 1
                ? " has no children."
                : ` and ${counted(agents - 1, "descendant")} on ${counted(levels, "level")}.`,
              cut > 0 && ` ${counted(cut, "agent has", "agents have")} more children than are shown.`,
            ),
            lineageTree(document),
          ];
        },
        h(
          "div",
          { class: "tree" },
          h("p", {}, "Reading level by level…"),
          h("div", { class: "tree-viewport waiting" }),
        ),
      ),
    ],
  };
};

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
