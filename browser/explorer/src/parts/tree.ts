/**
 * A lineage as a tree to walk about in: the ARIA tree pattern, laid out from left to right.
 *
 * One structure serves eye and screen reader: every visible agent is a `treeitem` in reading order, with its level and its
 * place among its siblings; the lines between them are decoration.
 */

import { hierarchy, tree as tidyTree, type HierarchyNode, type HierarchyPointNode } from "d3-hierarchy";
import { select } from "d3-selection";
import { zoom as zoomBehaviour, zoomIdentity, zoomTransform } from "d3-zoom";

import { h, replace, svg } from "../dom";
import type { LineageNode } from "../documents";
import { counted } from "../format";
import { go, hrefTo } from "../router";
import { badge, hex } from "./facts";

const ROW = 58;
const COLUMN = 268;
const CARD = { width: 216, height: 46 };
const MARGIN = 20;
/** How many agents are open at the start; deeper levels are opened by hand. */
const OPEN_AT_FIRST = 120;
const SMALLEST = 0.2;
const LARGEST = 2;
/** Smaller than this nothing can be read: the first view rather shows a part. */
const READABLE = 0.8;

type Node = HierarchyNode<LineageNode>;

/** The tree, with its controls. */
export function lineageTree(lineage: LineageNode): HTMLElement {
  const root = hierarchy(lineage, ({ children }) => children);
  const closed = new Set<Node>(root.descendants().filter((node) => node.children && node.depth >= openLevels(root)));
  let current: Node = root;
  const items = new Map<Node, HTMLElement>();
  let extent = { top: 0, bottom: 0, right: 0 };

  const lines = svg("svg", { class: "tree-lines", "aria-hidden": "true" });
  const list = h("div", { role: "tree", "aria-label": `Lineage of agent ${lineage.agentId}`, class: "tree-items" });
  const canvas = h("div", { class: "tree-canvas" }, lines, list);
  const viewport = h("div", { class: "tree-viewport" }, canvas);

  const zoom = zoomBehaviour<HTMLDivElement, unknown>()
    .scaleExtent([SMALLEST, LARGEST])
    // The wheel alone scrolls the page, as everywhere; a pinch on a touchpad arrives as wheel with Ctrl.
    .filter((event: MouseEvent) =>
      event.type === "wheel" ? event.ctrlKey || event.metaKey : event.button === 0 || event.type.startsWith("touch"),
    )
    .on("start", () => viewport.classList.add("moving"))
    .on("end", () => viewport.classList.remove("moving"))
    .on("zoom", ({ transform }: { transform: { x: number; y: number; k: number } }) => {
      canvas.style.transform = `translate(${transform.x}px, ${transform.y}px) scale(${transform.k})`;
    });
  const stage = select<HTMLDivElement, unknown>(viewport).call(zoom).on("dblclick.zoom", null);
  // A focused item may be outside; the browser must not scroll it in behind our transform.
  viewport.addEventListener("scroll", () => viewport.scrollTo(0, 0));

  /** Lays out what is open. */
  const draw = (): void => {
    const shown = hierarchy(root, (node) => (closed.has(node) ? [] : node.children));
    const placed = tidyTree<Node>()
      .nodeSize([ROW, COLUMN])
      .separation((a, b) => (a.data.data.note || b.data.data.note ? 1.35 : 1) * (a.parent === b.parent ? 1 : 1.15))(
      shown,
    );
    // Before lays parents ahead of children, siblings in order: as an outline is read.
    const inOrder: HierarchyPointNode<Node>[] = [];
    placed.eachBefore((point) => inOrder.push(point));
    items.clear();
    replace(list, ...inOrder.map(item));
    replace(lines, ...inOrder.filter((point) => point.parent !== null).map(line));
    if (!items.has(current)) current = root;
    items.get(current)?.setAttribute("tabindex", "0");
    const [heights, depths] = [inOrder.map(({ x }) => x), inOrder.map(({ y }) => y)];
    extent = {
      top: Math.min(...heights) - CARD.height / 2,
      // A note makes its card a line taller.
      bottom: Math.max(...heights) + CARD.height,
      right: Math.max(...depths) + CARD.width,
    };
  };

  const item = (point: HierarchyPointNode<Node>): HTMLElement => {
    const node = point.data;
    const { agentId, wallet, status, note } = node.data;
    const below = node.children?.length ?? 0;
    const siblings = node.parent?.children ?? [node];
    const toggle = h("span", { class: "tree-toggle", "aria-hidden": "true" });
    const element = h(
      "div",
      {
        role: "treeitem",
        class: "tree-item",
        "aria-level": node.depth + 1,
        "aria-setsize": siblings.length,
        "aria-posinset": siblings.indexOf(node) + 1,
        "aria-expanded": below > 0 ? String(!closed.has(node)) : undefined,
        tabindex: -1,
      },
      h(
        "span",
        { class: "tree-title" },
        h("a", { href: hrefTo(["agent", agentId]), tabindex: -1 }, `Agent ${agentId}`),
        badge(status),
        below > 0 &&
          h("span", { class: "tree-count" }, toggle, closed.has(node) ? counted(below, "child", "children") : ""),
      ),
      hex(wallet),
      note !== undefined && h("span", { class: "tree-note" }, note),
    );
    element.style.transform = `translate(${point.y}px, ${point.x - CARD.height / 2}px)`;
    element.addEventListener("click", (event) => {
      if (event.target instanceof Element && event.target.closest("a")) return;
      if (below > 0) flip(node);
      else focus(node);
    });
    // However the focus came here: by key, by click, or by a screen reader's own ways.
    element.addEventListener("focus", () => {
      items.get(current)?.setAttribute("tabindex", "-1");
      current = node;
      element.setAttribute("tabindex", "0");
    });
    items.set(node, element);
    return element;
  };

  const line = (point: HierarchyPointNode<Node>): SVGElement => {
    const from = point.parent ?? point;
    const [x1, x2] = [from.y + CARD.width, point.y];
    const middle = (x1 + x2) / 2;
    return svg("path", { d: `M${x1},${from.x}H${middle}V${point.x}H${x2}` });
  };

  const flip = (node: Node): void => {
    if (closed.has(node)) closed.delete(node);
    else closed.add(node);
    draw();
    focus(node);
  };

  /** Gives a node the focus and brings it into sight. */
  const focus = (node: Node): void => {
    const element = items.get(node);
    element?.focus({ preventScroll: true });
    const inner = element?.getBoundingClientRect();
    const outer = viewport.getBoundingClientRect();
    if (!inner) return;
    const over = (low: number, high: number, from: number, to: number): number =>
      low < from ? from - low + 12 : high > to ? to - high - 12 : 0;
    const dx = over(inner.left, inner.right, outer.left, outer.right);
    const dy = over(inner.top, inner.bottom, outer.top, outer.bottom);
    const { k } = zoomTransform(viewport);
    if (dx !== 0 || dy !== 0) stage.call(zoom.translateBy, dx / k, dy / k);
  };

  /** Puts the whole tree in sight, or at least its beginning. */
  const fit = (smallest: number): void => {
    const { top, bottom, right } = extent;
    const { clientWidth, clientHeight } = viewport;
    const k = Math.min(
      1,
      Math.max(smallest, Math.min((clientWidth - 2 * MARGIN) / right, (clientHeight - 2 * MARGIN) / (bottom - top))),
    );
    const isWhole = (bottom - top) * k <= clientHeight;
    // The root lies at height 0; where not all fits, it stays in the middle.
    const y = clientHeight / 2 - (isWhole ? ((top + bottom) / 2) * k : 0);
    const x = Math.max(MARGIN, (clientWidth - right * k) / 2);
    stage.call(zoom.transform, zoomIdentity.translate(x, y).scale(k));
  };

  const visible = (): Node[] => [...items.keys()];
  const move = (node: Node | null | undefined): void => {
    if (node && items.has(node)) focus(node);
  };
  const keys: Record<string, () => void> = {
    ArrowDown: () => move(visible()[visible().indexOf(current) + 1]),
    ArrowUp: () => move(visible()[visible().indexOf(current) - 1]),
    ArrowRight: () => (closed.has(current) ? flip(current) : move(current.children?.[0])),
    ArrowLeft: () => (current.children && !closed.has(current) ? flip(current) : move(current.parent)),
    Home: () => move(root),
    End: () => move(visible().at(-1)),
    Enter: () => go(hrefTo(["agent", current.data.agentId])),
    " ": () => current.children && flip(current),
    "+": () => stage.call(zoom.scaleBy, 1.25),
    "-": () => stage.call(zoom.scaleBy, 0.8),
    "0": () => fit(SMALLEST),
  };
  list.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });

  const button = (label: string, text: string, act: () => void): HTMLElement =>
    h("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick: act }, text);
  draw();
  viewport.style.height = `clamp(14rem, ${extent.bottom - extent.top + 2 * MARGIN}px, 68vh)`;
  // Its size is known once it stands in the page, and changes with the window.
  let placed = false;
  new ResizeObserver(() => {
    if (placed || viewport.clientWidth === 0) return;
    placed = true;
    fit(READABLE);
    // Whoever was quicker stays where they are.
    if (list.contains(document.activeElement)) focus(current);
  }).observe(viewport);
  return h(
    "div",
    { class: "tree" },
    h(
      "div",
      { class: "tree-controls" },
      button("Zoom out", "−", () => stage.call(zoom.scaleBy, 0.8)),
      button("Zoom in", "+", () => stage.call(zoom.scaleBy, 1.25)),
      button("Fit the whole tree", "Fit", () => fit(SMALLEST)),
      button("Expand all", "Expand all", () => {
        closed.clear();
        draw();
      }),
      button("Collapse all", "Collapse all", () => {
        root.descendants().forEach((node) => node.children && closed.add(node));
        draw();
        fit(READABLE);
      }),
    ),
    viewport,
    h(
      "p",
      { class: "note" },
      "Drag to move; pinch, or Ctrl and wheel, to zoom. By keyboard: arrows walk, open and close, Enter goes to the agent, plus, minus and 0 zoom.",
    ),
  );
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
