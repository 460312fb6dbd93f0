// Runs the test files of directories in one process, with one browser: a directory's tests some at a time, one directory after the
// other.
//
// node [--test-name-pattern=WORD] run.mjs DIRECTORY...

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { basename, resolve } from "node:path";
import { after, suite, test } from "node:test";
import { pathToFileURL } from "node:url";

import { closeBrowser } from "./chromium.mjs";
import * as declared from "./declared.mjs";

/** Tests at a time: more that only read would wait for the processor; those that write wait for the chain and its index. */
const LANES = { reading: 2, writing: 4 };

/** The tests of a directory. A file that cannot be read is one that fails. */
async function testsOf(directory) {
  const files = readdirSync(directory).filter((name) => name.endsWith(".test.mjs")).sort();
  for (const file of files) {
    const { href } = pathToFileURL(resolve(directory, file));
    await import(href).catch((error) => declared.test(file, () => Promise.reject(error)));
  }
  const tests = declared.takeDeclared();
  assert.ok(tests.length > 0, `${directory} has no tests`);
  return tests;
}

const suites = [];
for (const directory of process.argv.slice(2)) suites.push([directory, await testsOf(directory)]);
for (const [directory, tests] of suites) {
  suite(directory, { concurrency: LANES[basename(directory)] }, () => {
    for (const { name, options, body } of tests) test(name, options, () => body());
  });
}
after(closeBrowser);
