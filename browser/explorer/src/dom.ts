/** Elements from code. Text is only ever set as text, and there is no way here to set markup or a style attribute. */

/** What can stand inside an element; `null`, `undefined` and `false` are left out. */
export type Child = Node | string | number | bigint | null | undefined | false | Child[];

type Handler = (event: Event) => void;
type Attributes = Record<string, string | number | bigint | boolean | Handler | null | undefined>;

/** An HTML element. `onclick` and its like take functions; `true` sets an empty attribute, `false` and `null` none. */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element, in the same way. */
export function svg<Tag extends keyof SVGElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[Tag] {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/** Puts children in place of those an element has. */
export function replace(element: Element, ...children: Child[]): void {
  element.replaceChildren(...nodes(children));
}

/** Says something to a screen reader without moving anything. */
export function announce(text: string): void {
  const announcer = document.getElementById("announcer");
  if (announcer) announcer.textContent = text;
}

let ids = 0;

/** An id nobody else has. */
export function freshId(stem: string): string {
  ids += 1;
  return `${stem}-${ids}`;
}

function fill<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children: Child[]): (Node | string)[] {
  return children.flatMap((child) => {
    if (child === null || child === undefined || child === false) return [];
    if (Array.isArray(child)) return nodes(child);
    return [child instanceof Node ? child : String(child)];
  });
}
