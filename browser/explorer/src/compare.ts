/** Two answers to one question, compared field by field. */

import { isObject } from "./json";

/** `agree`, `differ`, or `moving`: a field that changes by itself or tells who was asked, and says nothing about truth. */
export type Outcome = "agree" | "differ" | "moving";

export interface Field {
  /** Such as `agent.status`, `data[3].amount` or `byCurrency["a.b"]`; keys may be text from the chain. */
  path: string;
  /** As JSON; undefined where this side has no such field. */
  api: string | undefined;
  chain: string | undefined;
  outcome: Outcome;
}

/** The clock's and the endpoint's fields, each where it is: a currency may be called like one. */
const MOVING = new Set([
  "checkedAt",
  "compliance.secondsSinceAttestation",
  "rpc",
  "chain",
  "asOf.blockNumber",
  "asOf.blockTimestamp",
  "asOf.parentHash",
]);
/** What ties a liable wallet to an agent, by its events. */
const LIABILITY = /\bliability\.\w+$/;
const PLAIN_KEY = /^[A-Za-z]\w*$/;

/** Every field of either document. */
export function compare(api: unknown, chain: unknown): Field[] {
  const [ours, theirs] = [leaves(api), leaves(chain)];
  return [...new Set([...ours.keys(), ...theirs.keys()])].map((path) => {
    const [left, right] = [ours.get(path), theirs.get(path)];
    const both = left !== undefined && right !== undefined;
    const isMoving = (both && MOVING.has(path)) || (LIABILITY.test(path) && isUnknown(ours, theirs, path));
    const outcome = isMoving ? "moving" : left === right ? "agree" : "differ";
    return { path, api: left, chain: right, outcome };
  });
}

/** Whether one side does not know what the other says of a liable wallet: only an index has seen its events and its parent. */
function isUnknown(ours: Map<string, string>, theirs: Map<string, string>, path: string): boolean {
  const basis = path.replace(LIABILITY, "liability.basis");
  const told = path.endsWith(".wallet") ? undefined : path.endsWith(".parentBasis") ? path : basis;
  return [ours, theirs].some(
    (fields) => !fields.has(basis) || (told !== undefined && fields.get(told) === '"unknown"'),
  );
}

function leaves(document: unknown): Map<string, string> {
  const found = new Map<string, string>();
  const walk = (value: unknown, path: string): void => {
    if (Array.isArray(value) && value.length > 0) {
      value.forEach((item, index) => walk(item, `${path}[${index}]`));
    } else if (isObject(value) && Object.keys(value).length > 0) {
      for (const [key, inner] of Object.entries(value)) walk(inner, path + step(key, path === ""));
    } else {
      found.set(path, typeof value === "bigint" ? value.toString() : JSON.stringify(value));
    }
  };
  walk(document, "");
  return found;
}

/** A key as a step that no other key, and no position in a list, is written like. */
function step(key: string, isFirst: boolean): string {
  if (!PLAIN_KEY.test(key)) return `[${JSON.stringify(key)}]`;
  return isFirst ? key : `.${key}`;
}
