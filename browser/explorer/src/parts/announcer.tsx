/** A live region: tells screen readers of changes that move nothing. */

import { useLayoutEffect, useState } from "preact/hooks";

let say: ((text: string) => void) | undefined;

/** Says something to a screen reader. */
export function announce(text: string): void {
  say?.(text);
}

/** The live region; the page has one. */
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
