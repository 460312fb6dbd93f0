// Runs the test files of directories in one process, with one browser: a directory's tests two at a time, one directory after the
// other.
//
// node [--test-name-pattern=WORD] run.mjs DIRECTORY...

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { resolve } from "node:path";
import { after, suite, test } from "node:test";
import { pathToFileURL } from "node:url";

import { closeBrowser } from "./chromium.mjs";

/** Tests at a time; more than two would wait for the processor. */
const LANES = 2;

for (const directory of process.argv.slice(2)) {
  const files = readdirSync(directory).filter((name) => name.endsWith(".test.mjs")).sort();
  assert.ok(files.length > 0, `${directory} has no tests`);
  suite(directory, { concurrency: LANES }, async () => {
    for (const file of files) {
      const { href } = pathToFileURL(resolve(directory, file));
      // A file that cannot be imported fails like a test.
      await import(href).catch((error) => test(file, () => Promise.reject(error)));
    }
  });
}

after(closeBrowser);
