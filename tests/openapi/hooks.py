"""What a description cannot say: values that this very service knows. SCHEMATHESIS_KNOWN is a JSON object of lists: of values by
their format, and under `signed` of requests that the relayer can carry out, each once."""

import json
import os

import schemathesis
from hypothesis import strategies as st

known = json.loads(os.environ["SCHEMATHESIS_KNOWN"])


def digits(alphabet: str, count: int) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, min_size=count, max_size=count).map(lambda text: "0x" + text)


# What each of these parameters must not be asked for together with.
EXCLUDED = {"history": ["block"]}

# In one case: a checksum cannot be guessed.
formats = {
    "ethereum-address": digits("0123456789abcdef", 40) | digits("0123456789ABCDEF", 40),
    "relay-id": digits("0123456789abcdef", 64),
}
for name, anybody in formats.items():
    values = known.get(name)
    schemathesis.openapi.format(name, st.sampled_from(values) | anybody if values else anybody)

schemathesis.openapi.format("web-origin", st.sampled_from(["https://shop.example", "http://127.0.0.1:8080", "https://[::1]:8443"]))

@schemathesis.deserializer("application/json")
def document(context, response):
    """Tokens are taken for a kind of JSON, and are text."""
    is_token = "application/jwt" in response.headers.get("content-type", [])
    return response.text if is_token else response.json()


# Cursors are given, not guessed.
schemathesis.openapi.format("change-cursor", st.sampled_from(known["change-cursor"] + ["now", "newest"]))


@schemathesis.hook
def before_call(context, case, kwargs):
    """In place of a request whose signature was made up, one that is signed; and of parameters that exclude one another one."""
    if case.operation.label == "POST /relay" and case.meta.generation.mode.is_positive and known["signed"]:
        case.body = known["signed"].pop()
    if case.operation.label == "GET /api/v1/kya/{wallet}" and case.meta.generation.mode.is_positive and case.query:
        asked = [name for name in EXCLUDED if case.query.get(name) == "1"]
        for name in [excluded for name in asked for excluded in EXCLUDED[name]]:
            case.query.pop(name, None)
    if case.operation.label == "GET /api/v1/kya/range/{prefix}" and case.meta.generation.mode.is_positive:
        # How long a prefix may be depends on the registry.
        case.path_parameters["prefix"] = case.path_parameters["prefix"][:1]
    if case.operation.label == "GET /api/v1/snapshot/{shard}" and case.meta.generation.mode.is_positive and known["shard"]:
        # A version is named, not guessed.
        case.path_parameters["shard"], case.query["v"] = known["shard"]
    if case.operation.label == "GET /api/v1/snapshot/shards" and case.meta.generation.mode.is_positive and known["shard"]:
        case.query["names"] = "-".join(known["shard"])
    if case.operation.label == "GET /api/v1/agents" and case.meta.generation.mode.is_positive and case.query:
        # A cursor is of one order, and no page of a number; numbered pages of filtered lists are the first ones.
        if "cursor" in case.query:
            case.query.pop("sort", None)
            case.query["cursor"] = str(case.query["cursor"]).split("-")[-1]
        if set(case.query) - {"page", "limit", "status"}:
            case.query.pop("page", None)
