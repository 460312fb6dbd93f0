// Requests as the cases describe them, signed by a signature base of this file's own.
//
// A case is a request, how it is signed, what is changed afterwards, and what the gate has to answer; `cases.json` has all
// of them, and what is not said there is as here.

import { createHash, randomBytes } from "node:crypto";
import { signRequest } from "../../browser/pkg/sign.js";

const TAGGED = ["@scheme", "@authority", "@method", "@path", "@query"];
const UNTAGGED = ["@authority", "@method", "@path"];

/**
 * The request of a case: `{ policy, method, target, lines, content }`, anew with each call: signatures are admitted once.
 *
 * @param setting where it is sent, `origin` and `chainId`, and its accounts by name, viem's or with an `address` of their own
 */
export async function requestOf(entry, setting) {
  if (entry.byPackage) return byPackage(entry, setting);
  const {
    policy = "api",
    method = "GET",
    target = "/items?view=full",
    headers = [],
    content = "",
    sign = {},
    then = {},
  } = entry;
  const request = { policy, method, target, lines: [...headers], content: bytesOf(content) };
  if (sign !== null) await signed(request, sign, setting);
  if (then.method) request.method = then.method;
  if (then.target) request.target = then.target;
  if (then.content !== undefined) request.content = bytesOf(then.content);
  for (const name of then.remove ?? []) request.lines = request.lines.filter(([other]) => other !== name);
  for (const [name, value] of then.set ?? []) edit(request, name, () => value);
  for (const [name, from, to] of then.edit ?? []) {
    edit(request, name, (value) => {
      if (!value.includes(from)) throw new Error(`${entry.name}: ${name} has no ${from}: ${value}`);
      return value.replace(from, to);
    });
  }
  request.lines.push(...(then.add ?? []));
  return request;
}

/** A request that the package signs; `byPackage` is `firefox` for an engine without `Request.body`. */
async function byPackage({ method, target = "/items", headers, content, policy = "api", byPackage }, setting) {
  const request = new Request(setting.origin + target, { method, headers, body: content });
  if (byPackage === "firefox") Object.defineProperty(request, "body", { value: undefined });
  const { address, signMessage } = setting.accounts.good;
  const signer = { address, chainId: setting.chainId, signMessage: (raw) => signMessage({ message: { raw } }) };
  const signed = await signRequest(request, signer);
  return { policy, method, target, lines: [...signed.headers], content: bytesOf(content ?? "") };
}

/** A text's bytes; `{ repeat, times }` is a long one. */
function bytesOf(content) {
  const text = typeof content === "string" ? content : content.repeat.repeat(content.times);
  return new TextEncoder().encode(text);
}

function edit(request, name, change) {
  const line = request.lines.find(([other]) => other === name);
  if (line) line[1] = change(line[1]);
  else request.lines.push([name, change("")]);
}

async function signed(request, sign, { origin, chainId, accounts }) {
  const {
    by = "good",
    as = by,
    dialect = "tagged",
    created = 0,
    validity = 60,
    label = "request",
    digest = "sha-256",
  } = sign;
  const isTagged = dialect === "tagged";
  if (digest && request.content.length > 0) {
    const hash = createHash(digest.replace("-", "")).update(request.content).digest("base64");
    request.lines.push(["content-digest", `${digest}=:${hash}:`]);
  }
  const has = (name) => request.lines.some(([other]) => other === name);
  const components = sign.components ?? [
    ...(isTagged ? TAGGED : UNTAGGED),
    ...(!isTagged && request.target.includes("?") ? ["@query"] : []),
    ...(has("content-digest") ? ["content-digest"] : []),
    ...(isTagged && has("content-type") ? ["content-type"] : []),
    ...(sign.more ?? []),
  ];
  const at = Math.floor(Date.now() / 1000) + created;
  const { nonce = randomBytes(16).toString("hex"), chain = chainId } = sign;
  const keyid = sign.keyid ?? `${isTagged ? "eip155" : "erc8128"}:${chain}:${accounts[as].address.toLowerCase()}`;
  const parameters =
    `(${components.map((name) => `"${name}"`).join(" ")});created=${at};expires=${at + validity}` +
    `${nonce === null ? "" : `;nonce="${nonce}"`};keyid="${keyid}"${sign.parameters ?? ""}${isTagged ? ';tag="erc8128"' : ""}`;
  const base = [
    ...components.map((name) => `"${name}": ${valueOf(name, request, origin)}`),
    `"@signature-params": ${parameters}`,
  ].join("\n");
  const signature = await accounts[by].signMessage({ message: { raw: new TextEncoder().encode(base) } });
  request.lines.push(["signature-input", `${label}=${parameters}`]);
  request.lines.push(["signature", `${label}=:${Buffer.from(signature.slice(2), "hex").toString("base64")}:`]);
}

function valueOf(name, { method, target, lines }, origin) {
  const [scheme, authority] = origin.split("://");
  const [path] = target.split("?");
  const derived = {
    "@scheme": scheme,
    "@authority": authority,
    "@method": method,
    "@path": path,
    "@query": `?${target.slice(path.length + 1)}`,
    "@target-uri": origin + target,
  };
  return (
    derived[name] ??
    lines
      .filter(([other]) => other === name)
      .map(([, value]) => value.trim())
      .join(", ")
  );
}
