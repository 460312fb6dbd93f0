/** The heading of a view, which takes the focus when the visitor arrives, and the document's title. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect } from "preact/hooks";

const SITE = "Agent registry";

/** `title` is the document's, before the site's name, and never text from the chain; the heading is the same without children. */
export function Heading({ title = "", children }: { title?: string; children?: ComponentChildren }) {
  useLayoutEffect(() => {
    document.title = title === "" ? SITE : `${title} · ${SITE}`;
  }, [title]);
  return <h1 tabIndex={-1}>{children ?? title}</h1>;
}
