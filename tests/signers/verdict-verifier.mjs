// Verifies verdicts with the sample for npm jose of docs/signed-verdicts.md: prints for each token its claims,
// or the error.
//
// node verdict-verifier.mjs JWKS_URL KEYID REGISTRY TOKEN...

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [jwks, keyid, registry, ...tokens] = process.argv.slice(2);
const [root, documented] = [join(import.meta.dirname, "../.."), "https://kya.example/.well-known/jwks.json"];
const [, sample] = readFileSync(join(root, "docs/signed-verdicts.md"), "utf8").match(/```js\n(.*?)```/s);
// Within the repository, where its imports are found.
const directory = mkdtempSync(join(root, "target/sample-"));
const module = join(directory, "sample.mjs");
writeFileSync(module, sample.replace(documented, jwks));
const { admitted } = await import(module);
rmSync(directory, { recursive: true });
const verify = (token) => admitted(token, keyid, registry).catch(({ code, message }) => ({ error: code ?? message }));
console.log(JSON.stringify(await Promise.all(tokens.map(verify))));
