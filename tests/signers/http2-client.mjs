// Sends one request over HTTP/2, its headers as they are, and prints the answer as JSON:
//
// node http2-client.mjs URL AUTHORITIES REQUEST
//
// URL is an address: `http:` by prior knowledge, `https:` with a certificate by one of AUTHORITIES, a PEM file, for the
// request's own host. REQUEST is JSON: `method`, `target`, `host`, `headers` as pairs, `body`, and `announced`, whether
// the content's length is sent.

import { readFileSync } from "node:fs";
import http2 from "node:http2";

const [url, authorities, request] = process.argv.slice(2);
const { method, target, host, headers, body, announced } = JSON.parse(request);
const session = http2.connect(url, { ca: readFileSync(authorities), servername: host });
const head = { ":method": method, ":path": target, ":authority": host };
for (const [name, value] of headers) head[name] = name in head ? [head[name], value].flat() : value;
if (body !== "" && announced) head["content-length"] = String(Buffer.byteLength(body));

const stream = session.request(head, { endStream: body === "" });
const answer = await new Promise((resolve, reject) => {
  let received;
  const chunks = [];
  stream.on("response", ({ ":status": status, ...fields }) => {
    received = { status, headers: Object.entries(fields).map(([name, value]) => [name, String(value)]) };
  });
  stream.on("data", (chunk) => chunks.push(chunk));
  // A server that refuses a request may reset its stream behind the answer.
  stream.on("error", (error) => received ?? reject(error));
  stream.on("close", () => resolve({ ...received, body: Buffer.concat(chunks).toString() }));
  session.on("error", reject);
  if (body !== "") stream.end(body);
});
session.destroy();
console.log(JSON.stringify(answer));
