/** "Prove by a block hash": evidence of a verdict from the API, held to the hash that the visitor's own sources have for its block. */

import { exchange, ServiceError } from "../api";
import { sources, statusOf, verifier, type Source } from "../chain";
import type { Evidence } from "../../../pkg/evidence.js";
import { h, type Child } from "../dom";
import { counted, sentences } from "../format";
import { isObject } from "../json";
import { hrefTo } from "../router";
import { settings } from "../settings";
import type { Scope } from "../viewLifetime";
import { hex } from "./facts";
import { sentence } from "./failure";
import { inquiry, unanswered } from "./inquiry";

/** The path of a verdict, whatever else is asked for with it, and its wallet. */
const KYA = /^\/api\/v1\/kya\/([^/?,]+)(\?|$)/;

/** The button and room for what comes of it; nothing for an answer that is no verdict. */
export function proof(scope: Scope, path: string): Child {
  const wallet = KYA.exec(path)?.[1];
  if (wallet === undefined) return false;
  const { button, result } = inquiry(scope, "Prove by a block hash", "Asking for evidence…", () =>
    prove(scope, decodeURIComponent(wallet)),
  );
  return [
    h("div", { class: "verification-row" }, button),
    h(
      "p",
      { class: "help" },
      "Gets a document from this server that proves the verdict by a block's hash, and asks your own sources for that hash.",
    ),
    result,
  ];
}

async function prove(scope: Scope, wallet: string): Promise<HTMLElement> {
  const asked = sources();
  if (asked.length === 0) {
    return failed([
      "Nobody to ask for the block's hash: set an RPC URL in the ",
      h("a", { href: hrefTo(["settings"]) }, "settings"),
      ", or use a browser with a wallet.",
    ]);
  }
  try {
    const [{ verifyEvidence }, { text, document }] = await Promise.all([
      verifier(),
      exchange(`/api/v1/kya/${encodeURIComponent(wallet)}?evidence=1`, { signal: scope.signal }),
    ]);
    const { verdict } = document as unknown as Evidence;
    const number = Number(verdict.asOf.blockNumber);
    const hashes = await Promise.all(asked.map((source) => hashOf(source, number, scope.signal)));
    const [first] = hashes;
    const agree = hashes.filter((hash) => hash !== undefined && hash === first).length;
    if (first === undefined || agree < asked.length) {
      const names = asked.map(({ name }, index) => `${name}: ${hashes[index] ?? "no answer"}`);
      return failed([`Your sources do not agree on the hash of block ${number}. `, names.join("; ")]);
    }
    const registry = settings().registry;
    const verified = verifyEvidence(text, {
      blockHash: first,
      wallet,
      ...(registry === "" ? {} : { registry }),
    });
    return h(
      "div",
      { class: "result", "data-proof": "proved" },
      h(
        "p",
        {},
        h("strong", {}, "Proved: "),
        verified.verdict.decision,
        `, against block ${verified.block.number}, whose hash `,
        `${agree} of ${counted(asked.length, "endpoint")} you named agree on.`,
      ),
      h("p", {}, "Block hash ", hex(verified.block.hash)),
      h(
        "p",
        {},
        "Registry ",
        hex(verified.registry),
        registry === "" ? ", as the API names it." : ", as in your settings.",
      ),
      h(
        "p",
        {},
        h(
          "a",
          {
            href: URL.createObjectURL(new Blob([text], { type: "application/json" })),
            download: `evidence-${wallet}-${number}.json`,
          },
          "Keep the document",
        ),
      ),
    );
  } catch (error) {
    return failed([explain(error)]);
  }
}

/** The hash that a source has for a block; nothing where it has none. */
async function hashOf({ rpc }: Source, number: number, signal: AbortSignal): Promise<string | undefined> {
  const call = { method: "eth_getBlockByNumber", params: [`0x${number.toString(16)}`, false] };
  try {
    const block =
      typeof rpc === "string"
        ? (
            await exchange(rpc, {
              signal,
              method: "POST",
              headers: { "content-type": "application/json" },
              body: JSON.stringify({ jsonrpc: "2.0", id: 1, ...call }),
            })
          ).document["result"]
        : await rpc.request(call);
    const hash = isObject(block) ? block["hash"] : undefined;
    return typeof hash === "string" ? hash.toLowerCase() : undefined;
  } catch {
    return undefined;
  }
}

function explain(error: unknown): string {
  if (error instanceof ServiceError) return sentence(error);
  const message = error instanceof Error ? error.message : String(error);
  return statusOf(error) === 0
    ? sentences(`The verifier could not run: ${message}`)
    : sentences(`The document proves nothing: ${message}`);
}

function failed(text: Child[]): HTMLElement {
  return unanswered("data-proof", "Not proved.", text);
}
