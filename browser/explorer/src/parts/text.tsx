/**
 * Text from the chain: untrusted, of any length and in any direction.
 *
 * It is isolated, so that a direction override inside ends inside; it wraps; and beyond a few lines it is folded away.
 */

import { useState } from "preact/hooks";

import { counted, whole } from "../format";

/** Longer than this is folded. */
const LONG = 320;
/** Zero-width and direction-changing characters, but for the two that join letters and emoji. */
const INVISIBLE = /[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g;

/** A short piece, such as a currency's name, inside a line. */
export function ChainWord({ text }: { text: string }) {
  return (
    <bdi class="chain-word" dir="auto">
      {text === "" ? "(empty)" : text}
    </bdi>
  );
}

/** The beginning of a piece of any length, as much as fits into a table's cell. */
export function ChainLine({ text }: { text: string }) {
  if (text === "") return <span class="muted">Nothing stated</span>;
  return (
    <bdi class="chain-line" dir="auto">
      {text}
    </bdi>
  );
}

/** A piece of any length, as a block. */
export function ChainText({ text }: { text: string }) {
  const [isOpen, setOpen] = useState(false);
  if (text === "") return <p class="muted">Nothing stated</p>;
  const isLong = text.length > LONG;
  const hidden = text.match(INVISIBLE)?.length ?? 0;
  return (
    <div>
      <bdi class={isLong && !isOpen ? "chain-text folded" : "chain-text"} dir="auto">
        {text}
      </bdi>
      {isLong && (
        <button type="button" class="link-button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? "Show less" : `Show all ${whole([...text].length)} characters`}
        </button>
      )}
      {hidden > 0 && <p class="note">Contains {counted(hidden, "invisible or direction-changing character")}.</p>}
    </div>
  );
}
