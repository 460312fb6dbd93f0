/** One agent of a lineage, as a card at its place. */

import { counted } from "../format";
import { hrefTo } from "../router";
import { Hex } from "./address";
import { Badge } from "./agent";
import { CARD, type Point } from "./treeLayout";

export interface TreeItemProps {
  point: Point;
  /** Whether it has children that are not shown. */
  isClosed: boolean;
  /** Whether the tab key stops here. */
  isStop: boolean;
  onFocus: () => void;
  /** A click beside the link. */
  onPress: () => void;
}

export function TreeItem({ point, isClosed, isStop, onFocus, onPress }: TreeItemProps) {
  const node = point.data;
  const { agentId, wallet, status, note } = node.data;
  const below = node.children?.length ?? 0;
  const siblings = node.parent?.children ?? [node];
  return (
    <div
      role="treeitem"
      class="tree-item"
      data-agent={String(agentId)}
      aria-level={node.depth + 1}
      aria-setsize={siblings.length}
      aria-posinset={siblings.indexOf(node) + 1}
      aria-expanded={below > 0 ? !isClosed : undefined}
      tabIndex={isStop ? 0 : -1}
      style={{ transform: `translate(${point.y}px, ${point.x - CARD.height / 2}px)` }}
      onFocus={onFocus}
      onClick={(event) => {
        if (!(event.target instanceof Element && event.target.closest("a"))) onPress();
      }}
    >
      <span class="tree-title">
        <a href={hrefTo(["agent", agentId])} tabIndex={-1}>
          Agent {String(agentId)}
        </a>
        <Badge status={status} />
        {below > 0 && (
          <span class="tree-count">
            <span class="tree-toggle" aria-hidden="true" />
            {isClosed && counted(below, "child", "children")}
          </span>
        )}
      </span>
      <Hex text={wallet} />
      {note !== undefined && <span class="tree-note">{note}</span>}
    </div>
  );
}
