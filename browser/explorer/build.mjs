// Bundles the page, and lays it out in `dist` as the static files that the Worker's assets binding serves, among them the texts of the
// Worker's own pages. File names carry a hash of their content, so that browsers may keep them for good; `index.html` alone is asked
// for again.

import { copyFileSync, cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename } from "node:path";

import { build } from "esbuild";

import { packagesOf, replaceFiles } from "./files.mjs";

/** What `index.html` names, and the bundler writes with a hash in between. */
const NAMED = [
  ["main", "css"],
  ["main", "js"],
  ["theme", "js"],
];

process.chdir(new URL(".", import.meta.url).pathname);
const PAGES = "../../edge-api/src/pages";
// Put together aside, so that what fails leaves the last page as it is.
const fresh = "../../target/xtask/explorer";
rmSync(fresh, { recursive: true, force: true });

const name = "[name]-[hash]";
const { metafile } = await build({
  entryPoints: ["src/main.tsx", "src/theme.ts"],
  outdir: `${fresh}/assets`,
  entryNames: name,
  chunkNames: name,
  assetNames: name,
  bundle: true,
  splitting: true,
  format: "esm",
  minify: true,
  target: "es2022",
  loader: { ".wasm": "file" },
  logLevel: "warning",
  metafile: true,
});

let page = readFileSync("index.html", "utf8");
const written = Object.keys(metafile.outputs).map((path) => basename(path));
for (const [stem, extension] of NAMED) {
  const plain = `/assets/${stem}.${extension}`;
  const hashed = written.find((file) => file.startsWith(`${stem}-`) && file.endsWith(`.${extension}`));
  if (!hashed || !page.includes(plain))
    throw new Error(`${plain} is not in index.html, or the bundler did not write it`);
  page = page.replaceAll(plain, `/assets/${hashed}`);
}
writeFileSync(`${fresh}/index.html`, page);

// As the licences of the libraries ask for.
let licences = "Libraries in this page, and their licences.\n";
for (const library of packagesOf(metafile)) {
  licences += `\n${library}\n\n${readFileSync(`../../node_modules/${library}/LICENSE`, "utf8")}`;
}
writeFileSync(`${fresh}/licences.txt`, licences);

cpSync("static", fresh, { recursive: true });
for (const text of ["api-catalog.json", "llms.txt"]) copyFileSync(`${PAGES}/${text}`, `${fresh}/${text}`);
// The API's description without the spaces that people read it by, which are half of it. No string goes over two lines.
const description = readFileSync(`${PAGES}/openapi.json`, "utf8").split("\n");
writeFileSync(`${fresh}/openapi.json`, description.map((line) => line.trimStart()).join(""));

replaceFiles(fresh, "dist");
