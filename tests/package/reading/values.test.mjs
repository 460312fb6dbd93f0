// What `parse` makes of JSON text.
//
// 1. Whatever has no long number is as `JSON.parse` has it.
// 2. Integers beyond a double are BigInts, wherever they stand and whatever their property is called.
// 3. What is no JSON is refused.

import assert from "node:assert/strict";
import { randomInt } from "node:crypto";

import { test } from "../../browser/harness/declared.mjs";
import { RegistryError, parse } from "../setting.mjs";

test("texts without long numbers are as JSON.parse has them", () => {
  for (const text of [
    "null", " true ", "0", "-0", "1.5", "1e21", "-7", '"9007199254740993"', "[]", "{}", "\t[1,\n2] ",
    "9007199254740991", "-9007199254740991", "1.23456789012345678", "12345678901234567e3", "0.12345678901234567",
    '{"b":1,"a":[{"c":"\\u0000\\ud83d\\ude00"}],"__proto__":{"x":1}}', '{"a":1,"a":2}',
    '{"1234567890123456":"1234567890123456"}', '{"12345678901234567\\"":[]}',
  ]) {
    const [found, expected] = [parse(text), JSON.parse(text)];
    assert.deepEqual(found, expected, text);
    if (found !== null && typeof found === "object") assert.deepEqual(Object.keys(found), Object.keys(expected), text);
  }
});

test("long integers are BigInts wherever they stand", () => {
  assert.equal(parse("9007199254740992"), 9007199254740992n);
  assert.equal(parse("\n-9007199254740993 "), -9007199254740993n);
  const max = 2n ** 256n - 1n;
  assert.equal(parse(`${max}`), max);
  assert.deepEqual(parse(`[1,${max},[],[[${max}]],"${max}"]`), [1, max, [], [[max]], `${max}`]);
  const object = parse(`{"z":${max},"a":{"b":[${max}]},"__proto__":${max},"constructor":${max},"a\\nb":${max}}`);
  assert.deepEqual(Object.keys(object), ["z", "a", "__proto__", "constructor", "a\nb"]);
  assert.deepEqual(Object.entries(object).map(([, value]) => value), [max, { b: [max] }, max, max, max]);
  assert.equal(Object.getPrototypeOf(object), Object.prototype);
});

test("any value comes back from its text", () => {
  for (let round = 0; round < 300; round += 1) {
    const value = anyValue(5);
    assert.deepEqual(parse(write(value)), value, write(value));
  }
});

function anyValue(depth) {
  switch (randomInt(depth > 0 ? 7 : 5)) {
    case 0: return null;
    case 1: return randomInt(2) === 0;
    case 2: return randomInt(1_000_000) / 8;
    case 3: return (BigInt(Number.MAX_SAFE_INTEGER) + BigInt(randomInt(1, 1000))) ** BigInt(randomInt(1, 5));
    case 4: return `${randomInt(100_000_000)}${"12345678\"\\\u2028"}${randomInt(100_000_000)}`;
    case 5: return Array.from({ length: randomInt(4) }, () => anyValue(depth - 1));
    default: return Object.fromEntries(Array.from({ length: randomInt(4) }, (_, i) => [`key ${i}`, anyValue(depth - 1)]));
  }
}

function write(value) {
  if (typeof value === "bigint") return `${value}`;
  if (Array.isArray(value)) return `[${value.map(write).join(", ")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, member]) => `${JSON.stringify(name)}: ${write(member)}`).join(",")}}`;
}

test("what is no JSON, or nested without end, is refused", () => {
  const bottomless = `${"[".repeat(5_000)}12345678901234567890${"]".repeat(5_000)}`;
  for (const text of ["", "{", "undefined", "01", "[1,]", "<html>", "12345678901234567890x", "NaN", bottomless]) {
    assert.throws(() => parse(text), (error) => {
      assert.ok(error instanceof RegistryError && error instanceof Error);
      assert.deepEqual([error.code, error.status, error.message], ["INVALID_PARAMETER", 400, "Invalid text: must be JSON"]);
      return true;
    });
  }
});
