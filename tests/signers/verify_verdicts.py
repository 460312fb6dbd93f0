"""Verifies verdicts with the sample in Python of docs/signed-verdicts.md: prints for each token its claims, or the error.

python verify_verdicts.py JWKS_URL KEYID REGISTRY TOKEN...
"""

import json
import re
import sys
from pathlib import Path

from agent_registry import NotAdmitted

JWKS, KEYID, REGISTRY, *TOKENS = sys.argv[1:]
PAGE = Path(__file__).parents[2].joinpath("docs/signed-verdicts.md").read_text()
SAMPLE = {}
exec(re.search("```python\n(.*?)```", PAGE, re.S)[1].replace("https://kya.example/.well-known/jwks.json", JWKS), SAMPLE)


def verify(token: str) -> dict:
    try:
        return SAMPLE["admitted"](token, KEYID, REGISTRY)
    except NotAdmitted as error:
        return {"error": str(error)}


print(json.dumps([verify(token) for token in TOKENS]))
