// Documents arrive with every digit, and with keys and texts as they are.
import assert from "node:assert/strict";
import { test } from "node:test";

import { parse } from "../src/json";

test("integers that a double cannot hold are BigInts, and all others numbers", () => {
  const text =
    '{"a":9007199254740993,"b":9007199254740991,"c":-9007199254740993,"d":0,"e":1.5,"f":1e30,"g":[1,90071992547409930]}';
  assert.deepEqual(parse(text), {
    a: 9007199254740993n,
    b: 9007199254740991,
    c: -9007199254740993n,
    d: 0,
    e: 1.5,
    f: 1e30,
    g: [1, 90071992547409930n],
  });
  assert.equal(parse(String(2n ** 256n - 1n)), 2n ** 256n - 1n);
});

test("digits inside texts and keys stay text", () => {
  const document = {
    "12345678901234567890": "98765432109876543210",
    quote: 'a " 1234567890123456789 \\',
    slash: "\\\\",
  };
  assert.deepEqual(parse(JSON.stringify(document)), document);
});

test("keys from the chain cannot change what an object is", () => {
  const parsed = parse('{"__proto__":12345678901234567890,"constructor":1}');
  assert.equal(Object.getPrototypeOf(parsed), Object.prototype);
  assert.deepEqual(Object.entries(parsed), [
    ["__proto__", 12345678901234567890n],
    ["constructor", 1],
  ]);
});

test("what is no JSON is an error", () => {
  for (const text of ["", "<html>", '{"a":12345678901234567890', "{a:1}", '{"a":00012345678901234567}']) {
    assert.throws(() => parse(text), SyntaxError, text);
  }
});
