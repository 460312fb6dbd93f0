// Compiles contracts for an EVM from before PUSH0, which forge's output is not for:
//
//     node compile.mjs berlin AgentRegistry Multicall3     prints {name: bytecode} as JSON

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { posix } from "node:path";

const contracts = new URL("../../contracts/", import.meta.url);
const solc = createRequire(contracts)("solc");
const [evmVersion, ...names] = process.argv.slice(2);

const sources = {};
const add = (path) => {
  if (path in sources) return;
  const content = readFileSync(new URL(path.replace(/^@/, "lib/@"), contracts), "utf8");
  sources[path] = { content };
  for (const [, imported] of content.matchAll(/^import [^"']*["']([^"']+)["'];/gm)) {
    add(imported.startsWith(".") ? posix.join(posix.dirname(path), imported) : imported);
  }
};
for (const name of names) add(`src/${name}.sol`);

const settings = {
  evmVersion,
  optimizer: { enabled: true, runs: 200 },
  outputSelection: { "*": { "*": ["evm.bytecode.object"] } },
};
const output = JSON.parse(solc.compile(JSON.stringify({ language: "Solidity", sources, settings })));
for (const { severity, formattedMessage } of output.errors ?? []) {
  if (severity === "error") throw new Error(formattedMessage);
}
const code = (name) => `0x${output.contracts[`src/${name}.sol`][name].evm.bytecode.object}`;
console.log(JSON.stringify(Object.fromEntries(names.map((name) => [name, code(name)]))));
