// How many signed requests a second @slicekit/erc8128 verifies with viem, on one thread: the peer of
// kya-gate's example `verify`.
//
// node verify.mjs REQUESTS.JSON SECONDS

import { readFileSync } from "node:fs";
import { verifyRequest } from "@slicekit/erc8128";
import { verifyMessage } from "viem";

const [file, seconds] = process.argv.slice(2);
// Built before, as a framework would have them; verifyRequest reads from copies.
const requests = JSON.parse(readFileSync(file, "utf8")).map(
  ({ method, url, headers, body }) => new Request(url, { method, headers, body: body || undefined }),
);
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
