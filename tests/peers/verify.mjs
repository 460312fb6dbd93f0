// How many signed requests a second @slicekit/erc8128 verifies with viem, on one thread: the peer of
// kya-gate's example `verify`, which reads the requests that this one signs and writes.
//
// node verify.mjs REQUESTS.JSON SECONDS

import { writeFileSync } from "node:fs";
import { signRequest, verifyRequest } from "@slicekit/erc8128";
import { verifyMessage } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";

const [file, seconds] = process.argv.slice(2);
const account = privateKeyToAccount(generatePrivateKey());
const signer = {
  chainId: 31337,
  address: account.address,
  signMessage: (raw) => account.signMessage({ message: { raw } }),
};
// Signed and built before, as a framework would have them; verifyRequest reads from copies.
const [requests, written] = [[], []];
for (let number = 0; number < 200; number++) {
  const url = `http://api.example/orders/${number}?view=full`;
  const body = number % 2 === 0 ? "" : `{"amount":"${number}"}`;
  const method = body ? "POST" : "GET";
  const request = await signRequest(url, { method, body: body || undefined }, signer);
  requests.push(request);
  const names = ["signature-input", "signature", "content-digest"].filter((name) => request.headers.has(name));
  const headers = Object.fromEntries(names.map((name) => [name, request.headers.get(name)]));
  written.push({ method, url, headers, body });
}
writeFileSync(file, JSON.stringify(written));
// Any number of times, so that requests can be verified again: what is measured is the verifier.
const nonceStore = { consume: async () => true };

/** Verifies for so long; how many a second. */
async function measure(seconds) {
  const began = performance.now();
  for (let verified = 0; ; verified++) {
    const elapsed = (performance.now() - began) / 1e3;
    if (elapsed >= seconds) return verified / elapsed;
    const result = await verifyRequest({ request: requests[verified % requests.length], verifyMessage, nonceStore });
    if (!result.ok) throw new Error(result.reason);
  }
}

// V8 compiles what is called often.
await measure(Number(seconds) / 2);
console.log(JSON.stringify({ per_second: await measure(Number(seconds)) }));
