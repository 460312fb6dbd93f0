// The package's declarations tell the truth.
//
// 1. Real documents fit their types: no field is missing, none is too many, none is of another kind.
// 2. What users write compiles, in strict mode and with the declarations themselves checked, in programs for Node without the DOM
//    library as well; what would fail does not.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { test } from "../../browser/harness/declared.mjs";
import { OPTIONS, Registry, api, forwardRequest, stack } from "../setting.mjs";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const FLAGS = "--noEmit --strict --target es2022 --module esnext --moduleResolution bundler --lib es2022,dom --types".split(" ");

const TYPES = path("../../clients/node_modules/@types");
const FOR_NODE = `--noEmit --strict --target es2022 --lib es2022 --typeRoots ${TYPES} --types node`.split(" ");

/** What the compiler has to say about a file; `""` is nothing. */
async function complaints(file, flags = [...FLAGS, ""]) {
  const compiler = promisify(execFile)(path("../../../node_modules/.bin/tsc"), [...flags, file]);
  return compiler.then(() => "", (error) => error.stdout || error.message);
}

test("real documents fit their types", async () => {
  const registry = new Registry(OPTIONS);
  const { atlas, harbour, kyoto, ledger, silent } = stack.agents;
  const request = { from: kyoto.wallet, to: stack.registry, value: 0, gas: 1, nonce: 0, deadline: 0, data: "0x" };
  const documents = [
    ["Health", await registry.health()],
    ["Stats", await registry.stats()],
    ["DetailedStats", await registry.detailedStats()],
    ["AgentDetail", await registry.agent(atlas.id)],
    ["AgentDetail", await registry.agent(silent.id)],
    ["AgentPage", await registry.agents()],
    ["ComplianceList", await registry.compliance()],
    ["ComplianceList", await registry.compliance({ limit: 1 })],
    ["LineageNode", await registry.lineage(harbour.id)],
    ["RevenueHistory", await registry.revenue(ledger.id)],
    ["RevenueAggregate", await registry.revenueAggregate()],
    ["Kya", await registry.kya(kyoto.wallet)],
    ["Kya", await registry.kya(`0x${"00".repeat(19)}01`)],
    ["Kya", await registry.kya(stack.agents.heir.wallet, { history: 1 })],
    ["Kya", await registry.kya(kyoto.wallet, { block: 5 })],
    ["KyaList", await registry.kyaList([kyoto.wallet, "me"])],
    ["AgentDetail", await registry.agent(atlas.id, { block: 5 })],
    ["Ancestors", await registry.ancestors(harbour.id)],
    ["TypedData", forwardRequest(request, { chainId: 1, forwarder: stack.registry })],
  ];
  const { document: evidence } = await api(`/api/v1/kya/${kyoto.wallet}?evidence=1`);
  documents.push(["Evidence", evidence, "Verifier"]);
  const directory = await mkdtemp(join(tmpdir(), "types-"));
  try {
    const typed = (documents) =>
      documents
        .map(([type, value, module = "Core"], n) => `export const d${n}: ${module}.${type} = ${literal(value)};`)
        .join("\n");
    const program = async (documents) => {
      const file = join(directory, "documents.ts");
      const modules = [["Core", "index.js"], ["Verifier", "evidence.js"]];
      const imports = modules.map(
        ([name, file]) => `import type * as ${name} from ${JSON.stringify(path(`../../../browser/pkg/${file}`))};\n`,
      );
      await writeFile(file, imports.join("") + typed(documents));
      return complaints(file);
    };
    assert.equal(await program(documents), "");
    // The compiler does look.
    const [[type, health]] = documents;
    assert.match(await program([[type, { ...health, more: 1 }]]), /'"more"' does not exist in type 'Health'/);
    const { rpc: _rpc, ...less } = health;
    assert.match(await program([[type, less]]), /'rpc' is missing/);
  } finally {
    await rm(directory, { recursive: true });
  }
});

/** A value as TypeScript writes it, exact about what an object has. */
function literal(value) {
  if (typeof value === "bigint") return `${value}n`;
  if (Array.isArray(value)) return `[${value.map(literal).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, member]) => `${JSON.stringify(name)}:${literal(member)}`).join(",")}}`;
}

test("what users write compiles, and what would fail does not", async () => {
  assert.equal(await complaints(path("../usage.ts")), "");
  for (const resolution of ["nodenext", "bundler"]) {
    const modules = ["--module", resolution === "bundler" ? "esnext" : resolution, "--moduleResolution", resolution];
    assert.equal(await complaints(path("../node.mts"), [...FOR_NODE, ...modules]), "", resolution);
  }
});
