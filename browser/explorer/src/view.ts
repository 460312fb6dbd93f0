/** What a view is: a title, a heading, and what stands below it. */

import { h, type Child } from "./dom";
import type { Route } from "./router";
import type { Scope } from "./viewLifetime";

export interface View {
  /** The document's title, before the site's name. Never text from the chain. */
  title: string;
  body: Child[];
}

/** Makes a view for a route; what takes time fills itself in later. */
export type Draw = (scope: Scope, route: Route) => View;

/** The heading of a view, which takes the focus when the visitor arrives. */
export function heading(...children: Child[]): HTMLHeadingElement {
  return h("h1", { tabindex: -1 }, children);
}
