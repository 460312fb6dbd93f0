// Copies the parts of forge's output that tests and tools need into the repository, so that they need no
// forge: `contracts/artifacts/<Contract>.json`, and the lenses in `core/src/chain`.
//
//     node artifacts.mjs            writes the files anew; run `forge build` before it
//     node artifacts.mjs --check    fails if one of them is not what the compiler makes

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const NEEDED = {
  AgentRegistry: ["abi", "bytecode", "deployedBytecode", "immutableReferences", "storageLayout"],
  Forwarder: ["bytecode"],
  Multicall3: ["deployedBytecode"],
  SyntheticRegistry: ["bytecode"],
};

const PARTS = {
  abi: (output) => output.abi,
  bytecode: (output) => output.bytecode.object,
  deployedBytecode: (output) => output.deployedBytecode.object,
  immutableReferences: (output) => Object.values(output.deployedBytecode.immutableReferences),
  storageLayout: (output) => withoutIds(output.storageLayout),
};

process.chdir(fileURLToPath(new URL(".", import.meta.url)));
const compiled = (contract) => JSON.parse(readFileSync(`out/${contract}.sol/${contract}.json`, "utf8"));

/** Drops the ids of the syntax tree: they change with any other source of the same compilation. */
function withoutIds(layout) {
  const text = JSON.stringify(layout, (key, value) => (key === "astId" ? undefined : value));
  return JSON.parse(text.replaceAll(/\)\d+/g, ")"));
}

const files = Object.entries(NEEDED).map(([contract, parts]) => {
  const output = compiled(contract);
  const lines = parts.map((part) => `"${part}": ${JSON.stringify(PARTS[part](output))}`);
  return [`artifacts/${contract}.json`, `{\n${lines.join(",\n")}\n}\n`];
});
files.push(["../core/src/chain/lens/registry_lens.hex", compiled("RegistryLens").deployedBytecode.object.slice(2)]);
files.push(["../core/src/chain/lens/deployless.hex", compiled("Deployless").bytecode.object.slice(2)]);
files.push(["../core/src/chain/account_lens.hex", compiled("AccountLens").deployedBytecode.object.slice(2)]);

for (const [path, content] of files) {
  if (!process.argv.includes("--check")) writeFileSync(path, content);
  else if (readFileSync(path, "utf8") !== content) throw new Error(`${path} is outdated: run contracts/artifacts.mjs`);
}
