/** Where the agents of a lineage stand: tidy, from left to right. */

import { hierarchy, tree as tidyTree, type HierarchyNode, type HierarchyPointNode } from "d3-hierarchy";

import type { LineageNode } from "../documents";

const ROW = 58;
const COLUMN = 268;
export const CARD = { width: 216, height: 46 };
/** How many agents are open at the start; deeper levels are opened by hand. */
const OPEN_AT_FIRST = 120;

export type Node = HierarchyNode<LineageNode>;

/** An agent at its place: `y` to the right and `x` downwards, since d3 draws trees from the top. */
export type Point = HierarchyPointNode<Node>;

export interface Layout {
  /** What is open, in the order of an outline: parents ahead of children, siblings in order. */
  points: Point[];
  /** From the root's height, and from its left. */
  extent: { top: number; bottom: number; right: number };
}

export function treeOf(lineage: LineageNode): Node {
  return hierarchy(lineage, ({ children }) => children);
}

/** Lays out what is open. */
export function layOut(root: Node, closed: ReadonlySet<Node>): Layout {
  const shown = hierarchy(root, (node) => (closed.has(node) ? [] : node.children));
  const placed = tidyTree<Node>()
    .nodeSize([ROW, COLUMN])
    .separation((a, b) => (a.data.data.note || b.data.data.note ? 1.35 : 1) * (a.parent === b.parent ? 1 : 1.15))(
    shown,
  );
  const points: Point[] = [];
  placed.eachBefore((point) => points.push(point));
  const [heights, depths] = [points.map(({ x }) => x), points.map(({ y }) => y)];
  return {
    points,
    extent: {
      top: Math.min(...heights) - CARD.height / 2,
      // A note makes its card a line taller.
      bottom: Math.max(...heights) + CARD.height,
      right: Math.max(...depths) + CARD.width,
    },
  };
}

/** The agents that are collapsed at first. */
export function closedAtFirst(root: Node): Set<Node> {
  const levels = openLevels(root);
  return new Set(root.descendants().filter((node) => node.children && node.depth >= levels));
}

/** How many levels can be open without showing more than `OPEN_AT_FIRST` agents; at least the root's children. */
function openLevels(root: Node): number {
  const perLevel: number[] = [];
  root.each(({ depth }) => (perLevel[depth] = (perLevel[depth] ?? 0) + 1));
  let shown = 0;
  for (const [depth, count] of perLevel.entries()) {
    shown += count;
    if (shown > OPEN_AT_FIRST && depth > 1) return depth - 1;
  }
  return perLevel.length;
}
