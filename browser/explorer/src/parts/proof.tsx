/** "Prove by a block hash": evidence of a verdict from the API, held to the hash that the visitor's own sources have for its block. */

import type { ComponentChildren, VNode } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";

import type { Evidence } from "../../../pkg/evidence.js";
import { exchange, ServiceError, within } from "../api";
import { sources, statusOf, verifier, type Source } from "../chain";
import { counted, sentences } from "../format";
import { isObject } from "../json";
import { hrefTo } from "../router";
import { settings } from "../settings";
import { Hex } from "./address";
import { sentence } from "./failure";
import { Inquiry, Unanswered } from "./inquiry";

/** The path of a verdict, with any query, and its wallet. */
const KYA = /^\/api\/v1\/kya\/([^/?,]+)(\?|$)/;

/** How long a source may take for an answer, in milliseconds. */
const PATIENCE = 15_000;

/** The button and its outcome; nothing for an answer that is no verdict. */
export function Proof({ path }: { path: string }) {
  const wallet = KYA.exec(path)?.[1];
  if (wallet === undefined) return null;
  return (
    <Inquiry
      label="Prove by a block hash"
      asking="Asking for evidence…"
      ask={(signal) => prove(decodeURIComponent(wallet), signal)}
      help="Gets a document from this server that proves the verdict by a block's hash, and asks your own sources for that hash."
    />
  );
}

async function prove(wallet: string, signal: AbortSignal): Promise<VNode> {
  const asked = sources();
  if (asked.length === 0) {
    return (
      <NotProved>
        No source to ask for the block's hash: set an RPC URL in the <a href={hrefTo(["settings"])}>settings</a>, or use
        a browser with a wallet.
      </NotProved>
    );
  }
  try {
    const [{ verifyEvidence }, { text, document }] = await Promise.all([
      verifier(),
      exchange(`/api/v1/kya/${encodeURIComponent(wallet)}?evidence=1`, { signal }),
    ]);
    const { verdict, chainId } = document as unknown as Evidence;
    const chains = await Promise.all(asked.map((source) => chainOf(source, signal)));
    const others = asked.flatMap(({ name }, index) => {
      const chain = chains[index];
      return chain === undefined || chain === String(chainId) ? [] : [`${name} is on chain ${chain}`];
    });
    if (others.length > 0)
      return <NotProved>{sentences(`${others.join(" and ")}, the document is of chain ${chainId}`)}</NotProved>;
    const number = Number(verdict.asOf.blockNumber);
    const hashes = await Promise.all(asked.map((source) => hashOf(source, number, signal)));
    const [first] = hashes;
    const agree = hashes.filter((hash) => hash !== undefined && hash === first).length;
    if (first === undefined || agree < asked.length) {
      const names = asked.map(({ name }, index) => `${name}: ${hashes[index] ?? "no answer"}`);
      return (
        <NotProved>
          Your sources do not agree on the hash of block {number}. {names.join("; ")}
        </NotProved>
      );
    }
    const registry = settings().registry;
    const verified = verifyEvidence(text, {
      blockHash: first,
      wallet,
      ...(registry === "" ? {} : { registry }),
    });
    return (
      <div class="result" data-proof="proved">
        <p>
          <strong>Proved: </strong>
          {verified.verdict.decision}, against block {verified.block.number}, whose hash {agree} of{" "}
          {counted(asked.length, "endpoint")} you named agree on.
        </p>
        <p>
          Block hash <Hex text={verified.block.hash} />
        </p>
        <p>
          Registry <Hex text={verified.registry} />
          {registry === "" ? ", as the API names it." : ", as in your settings."}
        </p>
        <p>
          <DocumentLink text={text} name={`evidence-${wallet}-${number}.json`} />
        </p>
      </div>
    );
  } catch (error) {
    return <NotProved>{explain(error)}</NotProved>;
  }
}

/** A link that saves the document, which lives as long as the link. */
function DocumentLink({ text, name }: { text: string; name: string }) {
  const [url] = useState(() => URL.createObjectURL(new Blob([text], { type: "application/json" })));
  useLayoutEffect(() => () => URL.revokeObjectURL(url), [url]);
  return (
    <a href={url} download={name}>
      Keep the document
    </a>
  );
}

/** The id of a source's chain, as a decimal number; nothing where it does not say. */
async function chainOf(source: Source, signal: AbortSignal): Promise<string | undefined> {
  const id = await answerOf(source, { method: "eth_chainId", params: [] }, signal);
  return typeof id === "string" && /^0x[0-9a-f]+$/i.test(id) ? String(BigInt(id)) : undefined;
}

/** The hash that a source has for a block; nothing where it has none. */
async function hashOf(source: Source, number: number, signal: AbortSignal): Promise<string | undefined> {
  const call = { method: "eth_getBlockByNumber", params: [`0x${number.toString(16)}`, false] };
  const block = await answerOf(source, call, signal);
  const hash = isObject(block) ? block["hash"] : undefined;
  return typeof hash === "string" ? hash.toLowerCase() : undefined;
}

/** What a source answers; nothing where it does not, in time. */
async function answerOf(
  { rpc }: Source,
  call: { method: string; params: unknown[] },
  signal: AbortSignal,
): Promise<unknown> {
  const limit = within(signal, PATIENCE);
  try {
    if (typeof rpc !== "string") return await Promise.race([rpc.request(call), aborted(limit)]);
    const { document } = await exchange(rpc, {
      signal: limit,
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, ...call }),
    });
    return document["result"];
  } catch {
    return undefined;
  }
}

/** Rejects once the signal is aborted. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
}

function explain(error: unknown): string {
  if (error instanceof ServiceError) return sentence(error);
  const message = error instanceof Error ? error.message : String(error);
  return statusOf(error) === 0
    ? sentences(`The verifier could not run: ${message}`)
    : sentences(`The document proves nothing: ${message}`);
}

function NotProved({ children }: { children: ComponentChildren }) {
  return (
    <Unanswered of="proof" title="Not proved.">
      {children}
    </Unanswered>
  );
}
