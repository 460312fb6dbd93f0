/** Where a screen reader hears of what happened without anything moving. */

import { useLayoutEffect, useState } from "preact/hooks";

let say: ((text: string) => void) | undefined;

/** Says something to a screen reader. */
export function announce(text: string): void {
  say?.(text);
}

/** Stands in the page once. */
export function Announcer() {
  const [text, setText] = useState("");
  useLayoutEffect(() => {
    say = setText;
    return () => (say = undefined);
  }, []);
  return (
    <div class="visually-hidden" aria-live="polite" id="announcer">
      {text}
    </div>
  );
}
