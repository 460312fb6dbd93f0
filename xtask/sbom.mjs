// Writes what each part of a release contains: a bill of materials (CycloneDX 1.6, NAME.cdx.json) and the licences of
// third parties with their texts (NAME.licences.txt).
// Run by `cargo xtask dist sbom`: node xtask/sbom.mjs DIRECTORY SECONDS PROGRAM,... TARGET...
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const [directory, seconds, programs, ...targets] = process.argv.slice(2);
const run = (program, ...args) => execFileSync(program, args, { encoding: "utf8", maxBuffer: 1 << 28 });
const cargo = (...args) => run(process.env.CARGO ?? "cargo", ...args);
const json = (path) => JSON.parse(readFileSync(path, "utf8"));

const WASM = "wasm32-unknown-unknown";
const PACKAGE = ["", "-evidence", "-snapshot", "-liability", "-gate", "-key"].map((part) => `registry-browser${part}`);
const { packages } = JSON.parse(cargo("metadata", "--locked", "--format-version", "1"));
const crates = new Map(packages.map((crate) => [`${crate.name}@${crate.version}`, crate]));
const checksums = new Map(
  [
    ...readFileSync("Cargo.lock", "utf8").matchAll(/name = "(.+)"\nversion = "(.+)"\nsource = .+\nchecksum = "(.+)"/g),
  ].map(([, name, version, checksum]) => [`${name}@${version}`, checksum]),
);

/**
 * What each crate links, of crates that are built together: their features are those that all of them ask for. The list that
 * `cargo auditable` writes into a program is that of `cargo metadata`, which has optional dependencies that are not compiled.
 */
function linked(roots, target) {
  const selected = roots.flatMap((name) => ["--package", name]);
  const edges = ["--edges", "normal,no-proc-macro", "--prefix", "depth", "--format", " {p}"];
  const tree = cargo("tree", "--locked", "--target", target, ...edges, ...selected);
  const found = new Map();
  const path = [];
  for (const [, depth, name, version] of tree.matchAll(/^(\d+) (\S+) v(\S+)/gm)) {
    path.length = Number(depth);
    const key = `${name}@${version}`;
    if (!found.has(key)) found.set(key, new Set());
    found.get(path.at(-1))?.add(key);
    path.push(key);
  }
  return found;
}

/** A component, the directory of its licences' texts, and the names of the components that it needs. */
function ofCargo(key, needs) {
  const { name, version, license, source, publish, manifest_path } = crates.get(key);
  const purl = `pkg:cargo/${name}@${encodeURIComponent(version)}`;
  const component = { type: "library", "bom-ref": purl, name, version };
  component.licenses = [{ expression: (license ?? "LicenseRef-unknown").replace(/ *(\/| OR ) */g, " OR ") }];
  // Crates that are in no registry have no address there.
  if (publish === null) component.purl = purl;
  if (checksums.has(key)) component.hashes = [{ alg: "SHA-256", content: checksums.get(key) }];
  return { component, texts: source && dirname(manifest_path), needs: [...needs] };
}

function ofNpm(name) {
  const { version, license, integrity } = json("package-lock.json").packages[`node_modules/${name}`];
  const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
  const [algorithm, digest] = integrity.split("-");
  const hash = { alg: algorithm.replace("sha", "SHA-"), content: Buffer.from(digest, "base64").toString("hex") };
  const licenses = [{ expression: license }];
  const component = { type: "library", "bom-ref": purl, name, version, licenses, purl, hashes: [hash] };
  return { component, texts: `node_modules/${name}`, needs: [] };
}

/** The standard library is part of whatever rustc compiles; what it is made of itself is in its own file. */
const [, compiler] = /^release: (.+)$/m.exec(run("rustc", "-vV"));
const standardLibrary = {
  component: {
    type: "library",
    "bom-ref": `rust-std@${compiler}`,
    name: "rust-std",
    version: compiler,
    licenses: [{ expression: "MIT OR Apache-2.0" }],
    cpe: `cpe:2.3:a:rust-lang:rust:${compiler}:*:*:*:*:*:*:*`,
  },
  needs: [],
};

const TEXTS = /^(licen[cs]e|copying|copyright|notice|unlicense)/i;

function licences(entries) {
  const [texts, without] = [new Map(), []];
  for (const { component, texts: from } of entries.filter((entry) => entry.texts)) {
    const title = `${component.name} ${component.version}`;
    const files = readdirSync(from).filter((file) => TEXTS.test(file) && statSync(join(from, file)).isFile());
    for (const file of files.sort()) {
      const text = readFileSync(join(from, file), "utf8").replaceAll("\r\n", "\n").trim();
      texts.set(text, [...(texts.get(text) ?? []), title]);
    }
    if (files.length === 0) without.push(`${title} (${component.licenses[0].expression})`);
  }
  const line = `\n\n${"=".repeat(80)}\n\n`;
  const parts = [...texts].map(([text, titles]) => `${[...new Set(titles)].join(", ")}\n\n${text}`);
  const head = "Licences of third parties. That of Rust's standard library: rust-std.html";
  if (without.length > 0) parts.unshift(`Under these licences, without a text of their own: ${without.join(", ")}`);
  return [head, ...parts].join(line) + "\n";
}

/** Zig's C library, which the programs link. */
function musl() {
  const venv = "target/dist-build/venv/lib";
  const texts = join(venv, readdirSync(venv)[0], "site-packages/ziglang/lib/libc/musl");
  const [, version] = /VERSION "(.+)"/.exec(readFileSync(join(texts, "src/internal/version.h"), "utf8"));
  const cpe = `cpe:2.3:a:musl-libc:musl:${version}:*:*:*:*:*:*:*`;
  const licenses = [{ expression: "MIT" }];
  return {
    component: { type: "library", "bom-ref": `musl@${version}`, name: "musl", version, licenses, cpe },
    texts,
    needs: [],
  };
}

/** Writes both files of a part, which is made from the crates `roots`, linked as `graph` says, and from `libraries`. */
function write(file, name, roots, graph, libraries = []) {
  const keys = roots.map((root) => [...graph.keys()].find((key) => key.startsWith(`${root}@`)));
  const found = new Set(keys);
  // A set's walk includes what is added on the way.
  for (const key of found) graph.get(key).forEach((need) => found.add(need));
  const ref = (key) => ofCargo(key, []).component["bom-ref"];
  const entries = [...found].sort().map((key) => ofCargo(key, graph.get(key)));
  const others = [...libraries, standardLibrary];
  const all = [...entries, ...others];
  const dependsOn = [...keys.map(ref), ...others.map((other) => other.component["bom-ref"])];
  const bom = {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: {
      timestamp: new Date(Number(seconds) * 1000).toISOString(),
      component: {
        type: "application",
        "bom-ref": name,
        name,
        version: crates.get(keys[0]).version,
        licenses: [{ expression: "MIT OR Apache-2.0" }],
      },
    },
    components: all.map((entry) => entry.component),
    dependencies: [
      { ref: name, dependsOn },
      ...all.map(({ component, needs }) => ({ ref: component["bom-ref"], dependsOn: needs.map(ref).sort() })),
    ],
  };
  const path = join(directory, file);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(`${path}.cdx.json`, `${JSON.stringify(bom, null, 1)}\n`);
  writeFileSync(`${path}.licences.txt`, licences(all));
}

/** What is linked of crates that are built one by one. */
function apart(roots) {
  const all = new Map();
  for (const [key, needs] of roots.flatMap((root) => [...linked([root], WASM)])) {
    all.set(key, new Set([...(all.get(key) ?? []), ...needs]));
  }
  return all;
}

const names = programs.split(",");
for (const target of targets) {
  const graph = linked(names, target);
  for (const name of names) write(`${target}/${name}`, name, [name], graph, [musl()]);
}
write("npm", "agent-registry", PACKAGE, apart(PACKAGE));
// The explorer has the package's modules.
const workers = ["edge-api", "edge-index", ...PACKAGE];
const explorer = json("target/xtask/explorer-libraries.json");
const deployed = apart(workers);
const libraries = explorer.map(ofNpm);
write("workers", "agent-registry-workers", workers, deployed, libraries);
// The image's; what is in it of Debian's packages is in its /var/lib/dpkg/status.d.
write("edge", "agent-registry-edge", workers, deployed, [...libraries, ofNpm("@cloudflare/workerd-linux-64")]);
const documents = join(run("rustc", "--print", "sysroot").trim(), "share/doc/rust");
copyFileSync(join(documents, "COPYRIGHT-library.html"), join(directory, "rust-std.html"));
