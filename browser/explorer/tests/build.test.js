// The build of the page: the libraries it lists, how it replaces files, where it works, and that no source sets markup.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { test } from "node:test";

import { packagesOf, replaceFiles } from "../files.mjs";

/** Sets markup, in Preact or in the DOM. Text from the chain may come from an attacker. */
const SETS_MARKUP =
  /dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|setHTMLUnsafe|createContextualFragment|document\.write|srcdoc/i;

test("the bundled packages are those the bundler names", () => {
  const inputs = ["../../node_modules/d3-zoom/src/zoom.js", "src/main.ts", "../../node_modules/@scope/x/index.js"];
  const again = "../../node_modules/d3-zoom/src/index.js";
  const metafile = { inputs: Object.fromEntries([...inputs, again].map((path) => [path, {}])) };
  assert.deepEqual(packagesOf(metafile), ["@scope/x", "d3-zoom"]);
});

test("a directory is renewed file by file", (t) => {
  const directory = mkdtempSync(join(tmpdir(), "explorer-"));
  t.after(() => rmSync(directory, { recursive: true }));
  const [from, to] = ["from", "to"].map((name) => join(directory, name));
  for (const path of [from, to]) mkdirSync(join(path, "assets"), { recursive: true });
  mkdirSync(join(to, "below"));
  for (const path of [join(from, "kept"), join(from, "assets/new"), join(to, "kept"), join(to, "assets/old")]) {
    writeFileSync(path, path);
  }
  replaceFiles(from, to);
  assert.deepEqual(readdirSync(to, { recursive: true }).sort(), ["assets", "assets/new", "below", "kept"]);
  assert.equal(readFileSync(join(to, "kept"), "utf8"), join(from, "kept"));
});

test("page and artifacts are built in a clone of any name", (t) => {
  const clone = realpathSync(mkdtempSync(join(tmpdir(), "a clone für ")));
  t.after(() => rmSync(clone, { recursive: true }));
  symlinkSync(resolve("node_modules"), join(clone, "node_modules"));
  const programs = ["browser/explorer/build.mjs", "contracts/artifacts.mjs"];
  for (const file of [...programs, "browser/explorer/files.mjs"]) cpSync(file, join(clone, file));
  const tell = "data:text/javascript,process.chdir = (folder) => { console.log(folder); process.exit(); };";
  for (const program of programs.map((file) => join(clone, file))) {
    const folder = execFileSync(process.execPath, ["--import", tell, program], { encoding: "utf8" });
    assert.equal(folder, `${dirname(program)}/\n`);
  }
});

test("nothing in the explorer sets markup", () => {
  for (const source of [
    "<p dangerouslySetInnerHTML={{ __html: scope }} />",
    "element.innerHTML = scope;",
    "<p innerHTML={scope} />",
    "<iframe srcDoc={scope} />",
    "element.insertAdjacentHTML('beforeend', scope);",
  ]) {
    assert.match(source, SETS_MARKUP);
  }
  assert.doesNotMatch("<p>{scope}</p>", SETS_MARKUP);
  const sources = "browser/explorer/src";
  const files = readdirSync(sources, { recursive: true }).filter((name) => /\.tsx?$/.test(name));
  assert.ok(files.length > 20, `sources are found: ${files}`);
  for (const name of files) assert.doesNotMatch(readFileSync(join(sources, name), "utf8"), SETS_MARKUP, name);
});
