// Who is liable: what a liable wallet signs (EIP-712), and the file of its domain. The checks are the core's (`acceptance.js`).
import init, { readDomainFile } from "./acceptance.js";
import { RegistryError, loaded } from "./error.js";

export { checkAcceptance, initSync, readDomainFile } from "./acceptance.js";
export { RegistryError } from "./error.js";

export default (source) => loaded(init(source));

const DAY = 86_400;
/** The largest file of a domain, in bytes. */
const FILE_MAX = 256 * 1024;

const EIP712_DOMAIN = [
  { name: "name", type: "string" },
  { name: "version", type: "string" },
  { name: "chainId", type: "uint256" },
  { name: "verifyingContract", type: "address" },
];
const ACCEPTANCE = [
  { name: "agentId", type: "uint256" },
  { name: "creator", type: "address" },
  { name: "agentWallet", type: "address" },
  { name: "haftungsperson", type: "address" },
  { name: "registeredAt", type: "uint64" },
  { name: "operationalScope", type: "string" },
  { name: "termsHash", type: "bytes32" },
  { name: "notBefore", type: "uint64" },
  { name: "notAfter", type: "uint64" },
];
const DOMAIN = [
  { name: "haftungsperson", type: "address" },
  { name: "domain", type: "string" },
  { name: "notBefore", type: "uint64" },
  { name: "notAfter", type: "uint64" },
];

const typed = (primaryType, type, { chainId, registry }, message) => ({
  types: { EIP712Domain: EIP712_DOMAIN, [primaryType]: type },
  primaryType,
  domain: { name: "AgentLiability", version: "1", chainId: Number(chainId), verifyingContract: registry },
  message,
});

const during = ({ days = 30, notBefore = Math.floor(Date.now() / 1000), notAfter = notBefore + days * DAY }) => ({
  notBefore,
  notAfter,
});

/** The acceptance of an agent, signed. `sign` gives the signature of EIP-712 typed data. */
export async function signAcceptance(agent, terms, sign) {
  const registeredAt = Date.parse(agent.registeredAt) / 1000;
  if (!Number.isInteger(registeredAt))
    throw new RegistryError("Invalid registeredAt: must be a time, ISO 8601", "INVALID_PARAMETER", 400);
  const { agentId, creator, agentWallet, haftungsperson } = agent;
  const pinned = { agentId: String(agentId), creator, agentWallet, haftungsperson, registeredAt };
  const agreed = { termsHash: terms.termsHash ?? `0x${"0".repeat(64)}`, ...during(terms) };
  const message = { ...pinned, operationalScope: agent.operationalScope, ...agreed };
  const signature = await sign(typed("LiabilityAcceptance", ACCEPTANCE, terms, message));
  return { chainId: Number(terms.chainId), registry: terms.registry, ...pinned, ...agreed, signature };
}

/** A wallet's entry in the file of a domain, signed. */
export async function signDomain(wallet, domain, terms, sign) {
  const time = during(terms);
  const signature = await sign(typed("LiableDomain", DOMAIN, terms, { haftungsperson: wallet, domain, ...time }));
  return { chainId: Number(terms.chainId), registry: terms.registry, wallet, ...time, signature };
}

/** The value of the header `Liability-Acceptance`. */
export function acceptanceHeader(acceptance) {
  const bytes = new TextEncoder().encode(JSON.stringify(acceptance));
  const base64 = btoa(String.fromCharCode(...bytes));
  return base64.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** Fetches and reads the file of a domain. */
export async function fetchDomain(domain, { fetch: ask = globalThis.fetch, signal, ...place }) {
  // Before anything is asked: a text with a slash or a port would name another address.
  readDomainFile('{"liable":[]}', domain, place);
  const url = `https://${domain}/.well-known/kya-liable.json`;
  const response = await ask(url, { redirect: "manual", credentials: "omit", referrerPolicy: "no-referrer", signal });
  if (!response.ok || response.body === null)
    throw new RegistryError(`${url} answered ${response.status}`, "DOMAIN_UNAVAILABLE", 502);
  return readDomainFile(await capped(response), domain, place);
}

/** The text of an answer that is no longer than a file may be. */
async function capped(response) {
  const chunks = [];
  let bytes = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return decoded(await new Blob(chunks).arrayBuffer());
    bytes += value.length;
    if (bytes > FILE_MAX) {
      await reader.cancel();
      throw new RegistryError("the file must have at most 256 KiB", "INVALID_PARAMETER", 400);
    }
    chunks.push(value);
  }
}

function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new RegistryError("the file must be UTF-8", "INVALID_PARAMETER", 400);
  }
}
