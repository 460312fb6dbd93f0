"""Verifies verdicts with the sample for PyJWT of docs/signed-verdicts.md: prints for each token its claims, or the error.

python verify_verdicts.py JWKS_URL KEYID REGISTRY TOKEN...
"""

import json
import os
import re
import sys
from pathlib import Path

import jwt

JWKS, KEYID, REGISTRY, *TOKENS = sys.argv[1:]
os.environ["NO_PROXY"] = "*"
PAGE = Path(__file__).parents[2].joinpath("docs/signed-verdicts.md").read_text()
SAMPLE = {}
exec(re.search("```python\n(.*?)```", PAGE, re.S)[1].replace("https://kya.example/.well-known/jwks.json", JWKS), SAMPLE)


def verify(token: str) -> dict:
    try:
        return SAMPLE["admitted"](token, KEYID, REGISTRY)
    except (jwt.PyJWTError, KeyError) as error:
        return {"error": type(error).__name__}


print(json.dumps([verify(token) for token in TOKENS]))
