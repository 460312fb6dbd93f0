"""Verifies verdicts with PyJWT: prints for each token its claims, or the name of the error.

python verify_verdicts.py JWKS_URL ISSUER AUDIENCE TOKEN...
"""

import json
import sys
import urllib.request

import jwt

JWKS, ISSUER, AUDIENCE, *TOKENS = sys.argv[1:]
with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(JWKS) as answer:
    KEYS = jwt.PyJWKSet.from_dict(json.load(answer))


def verify(token: str) -> dict:
    try:
        header = jwt.get_unverified_header(token)
        if header.get("typ") != "kya-verdict+jwt":
            raise jwt.InvalidTokenError("typ")
        return jwt.decode(
            token,
            KEYS[header["kid"]],
            algorithms=["ES256"],
            issuer=ISSUER,
            audience=AUDIENCE,
            leeway=5,
            options={"require": ["exp", "aud", "iss"]},
        )
    except (jwt.InvalidTokenError, KeyError) as error:
        return {"error": type(error).__name__}


print(json.dumps([verify(token) for token in TOKENS]))
