/** Addresses and hashes: whole in the text, shortened only to the eye. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";

import type { Address } from "../documents";
import { listHref } from "../listing";
import { hrefTo } from "../router";
import { announce } from "./announcer";

/** The last characters, which stay visible when a long hexadecimal text is shortened. */
const TAIL = 8;
/** For how long a button shows that it has copied, in milliseconds. */
const COPIED = 1_500;

/** An address or hash: whole in the text and the title, shortened only to the eye and only where there is no room. */
export function Hex({ text }: { text: string }) {
  return (
    <span class="hex" title={text}>
      <span class="hex-head">{text.slice(0, -TAIL)}</span>
      <span class="hex-tail">{text.slice(-TAIL)}</span>
    </span>
  );
}

/** An address that leads to its verdict. */
export function WalletLink({ address }: { address: Address }) {
  return (
    <a href={hrefTo(["wallet", address])} class="hex-link">
      <Hex text={address} />
    </a>
  );
}

/** A person's address that leads to what they are liable for. */
export function PersonLink({ address }: { address: Address }) {
  return (
    <a href={hrefTo(["liable", address])} class="hex-link">
      <Hex text={address} />
    </a>
  );
}

/** A creator's address that leads to the agents it has registered. */
export function CreatorLink({ address }: { address: Address }) {
  return (
    <a href={listHref({ creator: address })} class="hex-link">
      <Hex text={address} />
    </a>
  );
}

/** An address or hash, as its children show it, with a button that copies it. */
export function Copyable({
  text,
  what = "address",
  children = <Hex text={text} />,
}: {
  text: string;
  what?: string;
  children?: ComponentChildren;
}) {
  const [isCopied, setCopied] = useState(false);
  useLayoutEffect(() => {
    if (!isCopied) return undefined;
    const timer = setTimeout(() => setCopied(false), COPIED);
    return () => clearTimeout(timer);
  }, [isCopied]);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      announce("Copied");
    } catch {
      announce("The browser does not allow copying");
    }
  };
  return (
    <span class="copyable">
      {children}
      <button
        type="button"
        class={isCopied ? "icon-button done" : "icon-button"}
        aria-label={`Copy ${what} ${text}`}
        title="Copy"
        onClick={() => void copy()}
      >
        <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
          <path d="M5.5 4.5v-2h8v9h-2M2.5 4.5h8v9h-8z" fill="none" stroke="currentColor" stroke-width="1.3" />
        </svg>
      </button>
    </span>
  );
}
