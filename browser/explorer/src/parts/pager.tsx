/** Links to the pages before and after. */

export interface PagerProps {
  /** What is paged, for screen readers. */
  label: string;
  /** Where one is, such as `1 to 20 of 91`. */
  shown: string;
  /** Addresses; undefined where there is no such page. */
  previous: string | undefined;
  next: string | undefined;
}

export function Pager({ label, shown, previous, next }: PagerProps) {
  return (
    <nav class="pager" aria-label={`Pages: ${label}`}>
      <Step text="Previous page" href={previous} />
      <span>{shown}</span>
      <Step text="Next page" href={next} />
    </nav>
  );
}

/** The same for a list that is read by cursors, which lead onwards alone. */
export function CursorPager({ label, first, next }: { label: string } & Record<"first" | "next", string | undefined>) {
  return (
    <nav class="pager" aria-label={`Pages: ${label}`}>
      <Step text="First page" href={first} />
      <Step text="Next page" href={next} />
    </nav>
  );
}

/** A link without an address is one that cannot be followed, and keeps its place. */
function Step({ text, href }: { text: string; href: string | undefined }) {
  return href === undefined ? (
    <a class="button" role="link" aria-disabled="true">
      {text}
    </a>
  ) : (
    <a class="button" href={href}>
      {text}
    </a>
  );
}
