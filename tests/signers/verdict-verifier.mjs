// Verifies verdicts with npm jose, as a service would: a POST with a token gets 200 and its claims, or 401 and the
// reason. Keys are fetched when they are older than MAX_AGE_MS, and never because a token names an unknown one.
//
// node verdict-verifier.mjs JWKS_URL ISSUER AUDIENCE MAX_AGE_MS

import { createServer } from "node:http";
import { createRemoteJWKSet, jwtVerify } from "jose";

const [jwks, issuer, audience, cacheMaxAge] = process.argv.slice(2);
const options = { cacheMaxAge: Number(cacheMaxAge), cooldownDuration: Number.MAX_SAFE_INTEGER };
const keys = createRemoteJWKSet(new URL(jwks), options);

const server = createServer(async (request, response) => {
  let token = "";
  for await (const piece of request) token += piece;
  try {
    const expected = { issuer, audience, typ: "kya-verdict+jwt", algorithms: ["ES256"], clockTolerance: 5 };
    const { payload } = await jwtVerify(token, keys, { ...expected, requiredClaims: ["exp"] });
    response.end(JSON.stringify(payload));
  } catch (error) {
    response.statusCode = 401;
    response.end(error.code ?? String(error));
  }
});
server.listen(0, "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
