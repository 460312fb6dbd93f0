/** A canvas that moves and grows behind its window: by dragging, pinch and wheel, and by what its user calls. */

import { select } from "d3-selection";
import { zoom as zoomBehaviour, zoomIdentity, zoomTransform } from "d3-zoom";

import type { Layout } from "./treeLayout";

export const MARGIN = 20;
const SMALLEST = 0.2;
const LARGEST = 2;
/** Smaller than this nothing can be read: the first view rather shows a part. */
const READABLE = 0.8;

export interface Stage {
  /** Makes all of it larger or smaller. */
  scaleBy(factor: number): void;
  /** Puts the whole tree in sight; with `readable`, at least its beginning, at a size that can be read. */
  fit(extent: Layout["extent"], size?: "readable"): void;
  /** Moves an element of the canvas into the window. */
  reveal(element: Element): void;
  /** Takes its listeners away. */
  end(): void;
}

export function stageOf(viewport: HTMLDivElement, canvas: HTMLDivElement): Stage {
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
  const selection = select<HTMLDivElement, unknown>(viewport).call(zoom).on("dblclick.zoom", null);
  return {
    scaleBy: (factor) => void selection.call(zoom.scaleBy, factor),
    fit({ top, bottom, right }, size) {
      const { clientWidth, clientHeight } = viewport;
      const whole = Math.min((clientWidth - 2 * MARGIN) / right, (clientHeight - 2 * MARGIN) / (bottom - top));
      const k = Math.min(1, Math.max(size === "readable" ? READABLE : SMALLEST, whole));
      const isWhole = (bottom - top) * k <= clientHeight;
      // The root lies at height 0; where not all fits, it stays in the middle.
      const y = clientHeight / 2 - (isWhole ? ((top + bottom) / 2) * k : 0);
      const x = Math.max(MARGIN, (clientWidth - right * k) / 2);
      selection.call(zoom.transform, zoomIdentity.translate(x, y).scale(k));
    },
    reveal(element) {
      const inner = element.getBoundingClientRect();
      const outer = viewport.getBoundingClientRect();
      const dx = overhang(inner.left, inner.right, outer.left, outer.right);
      const dy = overhang(inner.top, inner.bottom, outer.top, outer.bottom);
      const { k } = zoomTransform(viewport);
      if (dx !== 0 || dy !== 0) selection.call(zoom.translateBy, dx / k, dy / k);
    },
    end: () => void selection.on(".zoom", null),
  };
}

/** How far to move a span so that it lies in another, with a little room; 0 where it does. */
function overhang(low: number, high: number, from: number, to: number): number {
  if (low < from) return from - low + 12;
  return high > to ? to - high - 12 : 0;
}
