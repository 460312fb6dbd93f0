/**
 * A lineage as a tree to walk about in: the ARIA tree pattern, laid out from left to right.
 *
 * One structure serves eye and screen reader: every visible agent is a `treeitem` in reading order, with its level and its
 * place among its siblings; the lines between them are decoration.
 */

import type { TargetedKeyboardEvent } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import type { LineageNode } from "../documents";
import { go, hrefTo } from "../router";
import { TreeItem } from "./treeItem";
import { CARD, closedAtFirst, layOut, treeOf, type Node, type Point } from "./treeLayout";
import { MARGIN, stageOf, type Stage } from "./treeStage";

/** The tree, with its controls. */
export function LineageTree({ lineage }: { lineage: LineageNode }) {
  const root = useMemo(() => treeOf(lineage), [lineage]);
  const [closed, setClosed] = useState<ReadonlySet<Node>>(() => closedAtFirst(root));
  const layout = useMemo(() => layOut(root, closed), [root, closed]);
  const nodes = layout.points.map(({ data }) => data);
  const [focused, setFocused] = useState(root);
  // The one stop for the tab key.
  const current = nodes.includes(focused) ? focused : root;

  const viewport = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const stage = useRef<Stage>(undefined);
  const [height] = useState(() => layout.extent.bottom - layout.extent.top + 2 * MARGIN);

  useLayoutEffect(() => {
    if (!viewport.current || !canvas.current) return undefined;
    const [outer, made] = [viewport.current, stageOf(viewport.current, canvas.current)];
    stage.current = made;
    // Its size is known once it stands in the page, and changes with the window.
    let isFitted = false;
    const observer = new ResizeObserver(() => {
      if (isFitted || outer.clientWidth === 0) return;
      isFitted = true;
      made.fit(layout.extent, "readable");
      // A visitor who moved the tree meanwhile keeps that position.
      const item = document.activeElement?.closest("[role=treeitem]");
      if (item && outer.contains(item)) made.reveal(item);
    });
    observer.observe(outer);
    return () => {
      observer.disconnect();
      made.end();
    };
  }, []);

  /** What is done once the next layout stands on the page. */
  const afterwards = useRef<(() => void) | undefined>(undefined);
  useLayoutEffect(() => {
    afterwards.current?.();
    afterwards.current = undefined;
  }, [layout]);

  const elementOf = (node: Node): HTMLElement | null | undefined =>
    list.current?.querySelector<HTMLElement>(`[data-agent="${node.data.agentId}"]`);

  /** Gives a node the focus and brings it into sight. */
  const focus = (node: Node): void => {
    const element = elementOf(node);
    if (!element) return;
    element.focus({ preventScroll: true });
    stage.current?.reveal(element);
  };
  const flip = (node: Node): void => {
    const next = new Set(closed);
    if (!next.delete(node)) next.add(node);
    afterwards.current = () => focus(node);
    setClosed(next);
  };
  const collapseAll = (): void => {
    const next = new Set(root.descendants().filter((node) => node.children));
    afterwards.current = () => stage.current?.fit(layOut(root, next).extent, "readable");
    setClosed(next);
  };

  const neighbour = (steps: number): Node | undefined => nodes[nodes.indexOf(current) + steps];
  const move = (node: Node | null | undefined): void => {
    if (node && nodes.includes(node)) focus(node);
  };
  const keys: Record<string, () => void> = {
    ArrowDown: () => move(neighbour(1)),
    ArrowUp: () => move(neighbour(-1)),
    ArrowRight: () => (closed.has(current) ? flip(current) : move(current.children?.[0])),
    ArrowLeft: () => (current.children && !closed.has(current) ? flip(current) : move(current.parent)),
    Home: () => move(root),
    End: () => move(nodes.at(-1)),
    Enter: () => go(hrefTo(["agent", current.data.agentId])),
    " ": () => current.children && flip(current),
    "+": () => stage.current?.scaleBy(1.25),
    "-": () => stage.current?.scaleBy(0.8),
    "0": () => stage.current?.fit(layout.extent),
  };
  const onKeyDown = (event: TargetedKeyboardEvent<HTMLElement>): void => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  };

  return (
    <div class="tree">
      <div class="tree-controls">
        <Control label="Zoom out" text="−" act={() => stage.current?.scaleBy(0.8)} />
        <Control label="Zoom in" text="+" act={() => stage.current?.scaleBy(1.25)} />
        <Control label="Fit the whole tree" text="Fit" act={() => stage.current?.fit(layout.extent)} />
        <Control label="Expand all" text="Expand all" act={() => setClosed(new Set())} />
        <Control label="Collapse all" text="Collapse all" act={collapseAll} />
      </div>
      <div
        class="tree-viewport"
        ref={viewport}
        style={{ height: `clamp(14rem, ${height}px, 68vh)` }}
        // A focused item may be outside; the browser must not scroll it in behind our transform.
        onScroll={(event) => event.currentTarget.scrollTo(0, 0)}
      >
        <div class="tree-canvas" ref={canvas}>
          <Lines points={layout.points} />
          <div
            role="tree"
            aria-label={`Lineage of agent ${lineage.agentId}`}
            class="tree-items"
            ref={list}
            onKeyDown={onKeyDown}
          >
            {layout.points.map((point) => (
              <TreeItem
                key={String(point.data.data.agentId)}
                point={point}
                isClosed={closed.has(point.data)}
                isStop={point.data === current}
                // However the focus came here: by key, by click, or by a screen reader's own ways.
                onFocus={() => setFocused(point.data)}
                onPress={() => (point.data.children ? flip(point.data) : focus(point.data))}
              />
            ))}
          </div>
        </div>
      </div>
      <p class="note">
        Drag to move; pinch, or Ctrl and wheel, to zoom. By keyboard: arrows walk, open and close, Enter goes to the
        agent, plus, minus and 0 zoom.
      </p>
    </div>
  );
}

function Control({ label, text, act }: { label: string; text: string; act: () => void }) {
  return (
    <button type="button" class="quiet" aria-label={label} title={label} onClick={act}>
      {text}
    </button>
  );
}

/** From each parent to its children. */
function Lines({ points }: { points: Point[] }) {
  const line = ({ x, y, parent }: Point): string | undefined => {
    if (!parent) return undefined;
    const start = parent.y + CARD.width;
    return `M${start},${parent.x}H${(start + y) / 2}V${x}H${y}`;
  };
  return (
    <svg class="tree-lines" aria-hidden="true">
      {points.map((point) => point.parent && <path key={String(point.data.data.agentId)} d={line(point)} />)}
    </svg>
  );
}
