/**
 * The API's JSON with every digit: an integer beyond 2^53 arrives as a BigInt where `JSON.parse` would round it.
 *
 * Done before parsing and not by the reviver's source text, which older browsers do not hand over.
 */

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const LONG_INTEGER = /^-?[1-9]\d{15,}$/;
/** Wraps long integers. No document has an object of this one key with a text in it. */
const WRAPPER = "\u0000integer";

/** Parses a document; throws a `SyntaxError` for what is no JSON. */
export function parse(text: string): unknown {
  const wrapped = text.replace(TOKEN, (token) =>
    LONG_INTEGER.test(token) ? JSON.stringify({ [WRAPPER]: token }) : token,
  );
  return JSON.parse(wrapped, (_key, value: unknown) => {
    if (!isObject(value) || typeof value[WRAPPER] !== "string") return value;
    const integer = BigInt(value[WRAPPER]);
    const small = Number(integer);
    return Number.isSafeInteger(small) ? small : integer;
  });
}

/** Whether a value is an object with keys: no array, no null. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
