/** Numbers, money and time as people read them. */

import type { Integer, Timestamp } from "./documents";

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium" });

/** A whole number of any size with thousands separators: 1,234,567. */
export function whole(value: Integer): string {
  return WHOLE.format(value);
}

/** Cents as units with two decimals, every digit kept: 123456 is 1,234.56. */
export function units(cents: Integer): string {
  const all = BigInt(cents);
  const rest = (all % 100n).toString().padStart(2, "0");
  return `${WHOLE.format(all / 100n)}.${rest}`;
}

/**
 * The day in the reader's own time zone. Agents may report any 64-bit number of seconds: what lies beyond the years a
 * `Date` knows is shown as served.
 */
export function day(timestamp: Timestamp): string {
  const date = new Date(timestamp);
  return isNaN(date.getTime()) ? timestamp : DAY.format(date);
}

/** The time of that day; empty beyond the years a `Date` knows. */
export function clock(timestamp: Timestamp): string {
  const date = new Date(timestamp);
  return isNaN(date.getTime()) ? "" : CLOCK.format(date);
}

/** A span of time in its two largest units: 6 d 23 h, 59 min 12 s. */
export function duration(seconds: number): string {
  const total = Math.max(0, Math.floor(seconds));
  const parts: [number, string][] = [
    [Math.floor(total / 86_400), "d"],
    [Math.floor(total / 3_600) % 24, "h"],
    [Math.floor(total / 60) % 60, "min"],
    [total % 60, "s"],
  ];
  const first = parts.findIndex(([amount]) => amount > 0);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([amount]) => amount > 0)
    .map(([amount, unit]) => `${amount} ${unit}`)
    .join(" ");
}

/** Texts one after another, each ended by a full stop if by nothing else. */
export function sentences(...texts: string[]): string {
  return texts.map((text) => (/[.!?]$/.test(text) ? text : `${text}.`)).join(" ");
}

/** `1 agent`, `2 agents`. */
export function counted(count: Integer, one: string, many = `${one}s`): string {
  return `${whole(count)} ${BigInt(count) === 1n ? one : many}`;
}
