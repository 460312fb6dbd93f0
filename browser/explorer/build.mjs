// Bundles the page, and writes the static files of the Worker's assets binding to `dist`, the Worker's own
// pages among them. File names carry a hash of their content, so browsers may cache them forever; only
// `index.html` is revalidated.

import { copyFileSync, cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

import { packagesOf, replaceFiles } from "./files.mjs";

/** The files that `index.html` names; the bundler adds a hash to their names. */
const NAMED = [
  ["main", "css"],
  ["main", "js"],
  ["theme", "js"],
];

process.chdir(fileURLToPath(new URL(".", import.meta.url)));
const PAGES = "../../edge-api/src/pages";
// Assembled aside, so that a failure leaves the last page as it is.
const fresh = "../../target/xtask/explorer";
rmSync(fresh, { recursive: true, force: true });

const name = "[name]-[hash]";
const { metafile } = await build({
  absWorkingDir: process.cwd(),
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

// The licences of the libraries require their texts.
let licences = "Libraries in this page, and their licences.\n";
const libraries = packagesOf(metafile);
for (const library of libraries) {
  licences += `\n${library}\n\n${readFileSync(`../../node_modules/${library}/LICENSE`, "utf8")}`;
}
writeFileSync(`${fresh}/licences.txt`, licences);
// For the bill of materials.
writeFileSync("../../target/xtask/explorer-libraries.json", JSON.stringify(libraries));

cpSync("static", fresh, { recursive: true });
for (const text of ["ai-catalog.json", "api-catalog.json", "llms.txt", "server-card.json"])
  copyFileSync(`${PAGES}/${text}`, `${fresh}/${text}`);
// The API's description without indentation, which is half of it. No JSON string spans two lines.
const description = readFileSync(`${PAGES}/openapi.json`, "utf8").split("\n");
writeFileSync(`${fresh}/openapi.json`, description.map((line) => line.trimStart()).join(""));

replaceFiles(fresh, "dist");

// What wrangler takes from its configuration and from `_headers`, for workerd by itself.
const [, first] = /^run_worker_first = (.+)$/m.exec(readFileSync("../../wrangler.toml", "utf8"));
const headers = readFileSync("static/_headers", "utf8");
const assets = { not_found_handling: "none", run_worker_first: JSON.parse(first), headers };
writeFileSync("../../deploy/edge/assets.json", JSON.stringify(assets));
