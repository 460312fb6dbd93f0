// Signed HTTP requests (ERC-8128 over RFC 9421), as an agent sends them.

const base64 = (bytes) => btoa(String.fromCharCode(...bytes));

function bytesOf(signature) {
  if (typeof signature !== "string") return new Uint8Array(signature);
  const digits = signature.replace(/^0x/, "");
  if (!/^([0-9a-f]{2})+$/i.test(digits)) throw new TypeError("signMessage must give bytes or hexadecimal digits");
  return Uint8Array.from(digits.match(/../g), (byte) => Number.parseInt(byte, 16));
}

export async function signRequest(request, { address, chainId, signMessage, validSeconds = 60, nonce, now }) {
  if (!/^0x[0-9a-f]{40}$/i.test(address ?? "")) throw new TypeError("address must be 0x and 40 hexadecimal digits");
  if (!/^[1-9][0-9]*$/.test(String(chainId))) throw new TypeError("chainId must be a whole number");
  const { protocol, host, pathname, search } = new URL(request.url);
  const values = [
    ["@scheme", protocol.slice(0, -1)],
    ["@authority", host],
    ["@method", request.method],
    ["@path", pathname],
    ["@query", search || "?"],
  ];
  const headers = new Headers(request.headers);
  // Not by `request.body`, which Firefox does not have.
  const mayHaveContent = !["GET", "HEAD"].includes(request.method);
  if (mayHaveContent) {
    const content = await request.clone().arrayBuffer();
    // Of no content, too: not every proxy tells its gate that there is none.
    if (content.byteLength > 0 || !headers.has("content-digest")) {
      const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
      headers.set("content-digest", `sha-256=:${base64(digest)}:`);
    }
  }
  // Both are signed whenever they are sent.
  for (const name of ["content-digest", "content-type"]) {
    if (headers.has(name)) values.push([name, headers.get(name)]);
  }
  const created = Math.floor((now ?? Date.now()) / 1000);
  const once =
    nonce ??
    base64(crypto.getRandomValues(new Uint8Array(18)))
      .replaceAll("+", "-")
      .replaceAll("/", "_");
  const fields = values.map(([name]) => `"${name}"`).join(" ");
  const keyid = `eip155:${chainId}:${address.toLowerCase()}`;
  const parameters =
    `(${fields});created=${created};expires=${created + validSeconds};nonce="${once}"` +
    `;keyid="${keyid}";tag="erc8128"`;
  const lines = values.map(([name, value]) => `"${name}": ${value}`);
  const base = [...lines, `"@signature-params": ${parameters}`].join("\n");
  const signature = bytesOf(await signMessage(new TextEncoder().encode(base)));
  headers.set("signature-input", `request=${parameters}`);
  headers.set("signature", `request=:${base64(signature)}:`);
  return new Request(request, { headers });
}
