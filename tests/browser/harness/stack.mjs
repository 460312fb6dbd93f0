// What the Rust side has started, and what is on the chain there: `tests/src/stack.rs` describes it in `E2E_STACK`.

import { readFileSync } from "node:fs";

import { Contract, JsonRpcProvider } from "ethers";

/**
 * @typedef {object} Stack
 * @property {string} worker the Worker's address, which serves page and API
 * @property {string} snapshots the address of another instance, with verdicts from the registry's snapshot
 * @property {string} relayer the relayer's address
 * @property {string} guarded the address of a service behind a gate, for agents alone
 * @property {string} rpc the chain's node
 * @property {string} otherRpc a node of another chain
 * @property {string} silentRpc an address without a listener
 * @property {string} registry the registry's address
 * @property {Record<string, Agent>} agents the showcase's agents by their names in the story
 *
 * @typedef {object} Agent
 * @property {number} id
 * @property {string} wallet with its checksum
 * @property {string} person who is liable, with its checksum
 */

/** @type {Stack} */
export const stack = JSON.parse(process.env.E2E_STACK ?? "null");
if (!stack) throw new Error("E2E_STACK is not set: run `cargo all-test --test explorer`, or `--test package`");

/** As the compiler left it. */
const ARTIFACT = new URL("../../../contracts/artifacts/AgentRegistry.json", import.meta.url);

const { abi } = JSON.parse(readFileSync(ARTIFACT, "utf8"));
const provider = new JsonRpcProvider(stack.rpc, undefined, { staticNetwork: true });

/**
 * The registry as the chain has it, without the API between.
 *
 * @param {string} [from] an account that the node has unlocked, for writes
 */
export async function registry(from) {
  return new Contract(stack.registry, abi, from === undefined ? provider : await provider.getSigner(from));
}

/** Every agent as the chain has it, by id. */
export async function records() {
  const contract = await registry();
  const count = Number(await contract.nextAgentId()) - 1;
  return Promise.all(Array.from({ length: count }, (_, index) => contract.getAgent(index + 1)));
}
