// What the package's tests share: the package itself, ready to use; the Worker to compare with; a wallet without a screen.

import { createServer } from "node:http";

import initEvidence from "../../browser/pkg/evidence-node.js";
import initLocal from "../../browser/pkg/local-node.js";
import init from "../../browser/pkg/node.js";
import { stack } from "../browser/harness/stack.mjs";

await Promise.all([init(), initEvidence(), initLocal()]);

export * from "../../browser/pkg/node.js";
export { FolderStore, LocalKya, kyaPrivately } from "../../browser/pkg/local-node.js";
export { verifyEvidence } from "../../browser/pkg/evidence-node.js";
export { api, fetchOnce } from "../browser/harness/api.mjs";
export { stack };

/** The options of a registry on the stack's chain. */
export const OPTIONS = { rpc: stack.rpc, registry: stack.registry };

/** A document's text with what moves by the clock alone held still. */
export function still(text) {
  return text
    .replaceAll(/"checkedAt":"[^"]+"/g, '"checkedAt":"…"')
    .replaceAll(/"asOf":\{[^}]+\}/g, '"asOf":{}')
    .replaceAll(/"secondsSinceAttestation":\d+/g, '"secondsSinceAttestation":0');
}

const LIABILITY = /"liability":(\{[^}]*\})/g;

/**
 * Two texts in which a liability is the same wherever it is known on both sides: only an index has seen the events of a liable
 * wallet, and has the record of a parent at hand.
 */
export function asFarAsBothKnow(ours, theirs) {
  const told = [ours, theirs].map((text) => [...text.matchAll(LIABILITY)].map(([, liability]) => JSON.parse(liability)));
  const known = (liability, other = {}) => {
    const isKnown = (name) => [liability, other].every((side) => side[name] !== "unknown");
    const { basis, attestedAt, parentBasis, ...rest } = liability;
    if (isKnown("basis")) Object.assign(rest, { basis, attestedAt });
    return JSON.stringify(isKnown("parentBasis") ? { ...rest, parentBasis } : rest);
  };
  return [ours, theirs].map((text, side) => {
    let place = 0;
    return text.replaceAll(LIABILITY, () => {
      const at = place++;
      return `"liability":${known(told[side][at], told[1 - side][at])}`;
    });
  });
}

/** An EIP-1193 provider on a node, which knows how often it was asked, and how many calls it had at once. */
export class Provider {
  calls = 0;
  atOnce = 0;
  #underWay = 0;

  /** @param {string} rpc the node; it may be changed, as a wallet's chain is */
  constructor(rpc = stack.rpc) {
    this.rpc = rpc;
  }

  async request({ method, params }) {
    this.calls += 1;
    this.#underWay += 1;
    this.atOnce = Math.max(this.atOnce, this.#underWay);
    try {
      const body = JSON.stringify({ jsonrpc: "2.0", id: this.calls, method, params });
      const headers = { "content-type": "application/json" };
      const { result, error } = await (await fetch(this.rpc, { method: "POST", headers, body })).json();
      if (error) throw Object.assign(new Error(error.message), { code: error.code, data: error.data });
      return result;
    } finally {
      this.#underWay -= 1;
    }
  }
}

/**
 * Serves on a free port for as long as `body` runs.
 *
 * @param {import("node:http").RequestListener} listener
 * @param {(url: string) => Promise<T>} body
 * @returns {Promise<T>}
 * @template T
 */
export async function serving(listener, body) {
  const server = createServer(listener);
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  try {
    return await body(`http://127.0.0.1:${server.address().port}`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}
