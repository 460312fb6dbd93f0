/**
 * Routes: what the address says after `#`, such as `#/agents?status=Active&page=2`.
 *
 * All state that matters is in there, so that a copied address shows the same view and Back goes back.
 */

/** An address taken apart. */
export interface Route {
  /** `/agents` is `["agents"]`, the start page `[]`. */
  segments: string[];
  query: URLSearchParams;
}

/** The route an address's fragment names. */
export function routeOf(fragment: string): Route {
  const [path = "", query = ""] = fragment.replace(/^#/, "").split(/\?(.*)/s);
  const segments = path.split("/").filter((segment) => segment !== "");
  return { segments: segments.map(decode), query: new URLSearchParams(query) };
}

/** The fragment for a route; empty and undefined query values are left out. */
export function hrefTo(
  segments: (string | number | bigint)[],
  query: Record<string, string | number | bigint | undefined> = {},
): string {
  const path = segments.map((segment) => `/${encodeURIComponent(String(segment))}`).join("") || "/";
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") parameters.set(name, String(value));
  }
  return parameters.size === 0 ? `#${path}` : `#${path}?${parameters}`;
}

/** Goes to a route, as following a link does. */
export function go(href: string): void {
  location.hash = href;
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
