// An agent's signed requests (ERC-8128), by libraries of the field: sends a GET with a query and a POST with
// content by each of them, and prints what came back.
//
// node signed-requests.mjs ORIGIN CHAIN_ID PRIVATE_KEY

import { createHash, randomBytes } from "node:crypto";
import { createSignerClient } from "@slicekit/erc8128";
import { httpbis } from "http-message-signatures";
import { privateKeyToAccount } from "viem/accounts";
import { signatureHeaders } from "web-bot-auth";
import { signerFromJWK } from "web-bot-auth/crypto";

const [origin, chain, key] = process.argv.slice(2);
const account = privateKeyToAccount(key);
const signRaw = (message) => account.signMessage({ message: { raw: message } });
const body = JSON.stringify({ amount: "100" });
const requests = [
  { method: "GET", url: `${origin}/items?view=full`, headers: {} },
  { method: "POST", url: `${origin}/orders`, headers: { "content-type": "application/json" }, body },
];

/** The earlier draft, by the client of its authors. */
async function slicekit({ method, url, headers, body }) {
  const client = createSignerClient({ chainId: Number(chain), address: account.address, signMessage: signRaw });
  return client.fetch(url, { method, headers, body });
}

/** The draft of August 2026, by a general library for RFC 9421 and viem. */
async function signed({ method, url, headers, body }) {
  const fields = ["@scheme", "@authority", "@method", "@path", "@query"];
  headers = { ...headers };
  if (body) {
    headers["content-digest"] = `sha-256=:${createHash("sha256").update(body).digest("base64")}:`;
    fields.push("content-digest", "content-type");
  }
  const created = new Date();
  const message = await httpbis.signMessage(
    {
      key: {
        id: `eip155:${chain}:${account.address.toLowerCase()}`,
        sign: async (base) => Buffer.from((await signRaw(base)).slice(2), "hex"),
      },
      name: "request",
      fields,
      params: ["created", "expires", "nonce", "keyid", "tag"],
      paramValues: {
        created,
        expires: new Date(created.getTime() + 60_000),
        nonce: randomBytes(16).toString("base64url"),
        tag: "erc8128",
      },
    },
    { method, url, headers },
  );
  return { method, headers: message.headers, body };
}

/** The key of RFC 9421, appendix B.1.4. */
const BOT = {
  kty: "OKP",
  crv: "Ed25519",
  kid: "test-key-ed25519",
  d: "n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU",
  x: "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs",
};

/** The signature of a bot (web-bot-auth) on a request. */
async function botHeaders({ method, url }) {
  const created = new Date();
  const expires = new Date(created.getTime() + 60_000);
  const headers = await signatureHeaders(new Request(url, { method }), await signerFromJWK(BOT), { created, expires });
  return { Signature: headers["Signature"], "Signature-Input": headers["Signature-Input"] };
}

const outcomes = [];
for (const request of requests) {
  const answered = async (client, response) => {
    outcomes.push({ client, method: request.method, status: response.status, body: await response.text() });
  };
  const own = await signed(request);
  await answered("@slicekit/erc8128", await slicekit(request));
  await answered("http-message-signatures", await fetch(request.url, own));
  const bot = await botHeaders(request);
  await answered("web-bot-auth alone", await fetch(request.url, { ...request, headers: { ...request.headers, ...bot } }));
  const both = new Headers(bot);
  const again = await signed(request);
  for (const [name, value] of Object.entries(again.headers)) both.append(name, value);
  await answered("web-bot-auth as well", await fetch(request.url, { ...again, headers: both }));
}
console.log(JSON.stringify(outcomes));
