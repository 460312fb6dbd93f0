/** The search: one form, on the start page or in the page's head, wherever the visitor is. */

import { useRef, useState } from "preact/hooks";

import { go, hrefTo } from "../router";
import { trimmed } from "../form";
import { Form } from "./form";

export function Search() {
  const [text, setText] = useState("");
  const [isRefused, setRefused] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const lookUp = (): void => {
    const href = target(trimmed(text));
    setRefused(href === undefined);
    if (href === undefined) input.current?.focus();
    else go(href);
  };
  return (
    <Form class="search" role="search" onSubmit={lookUp}>
      <label for="search">Wallet or agent id</label>
      <div class="search-row">
        <input
          id="search"
          type="search"
          placeholder="0x… or 11"
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          aria-describedby="search-fault"
          aria-invalid={isRefused}
          value={text}
          ref={input}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <button type="submit" class="primary">
          Look up
        </button>
      </div>
      <div id="search-fault">
        {isRefused && (
          <p class="fault" role="alert">
            Wallet or agent id must be 0x and 40 hexadecimal digits, or a whole number from 1.
          </p>
        )}
      </div>
    </Form>
  );
}

/** Where a text leads: an id to its agent, a wallet to its verdict. The API judges checksums. */
export function target(text: string): string | undefined {
  if (/^0x[0-9a-f]{40}$/i.test(text)) return hrefTo(["wallet", `0x${text.slice(2)}`]);
  if (/^[0-9]{1,78}$/.test(text) && BigInt(text) > 0n) return hrefTo(["agent", BigInt(text)]);
  return undefined;
}
