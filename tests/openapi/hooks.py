"""What a description cannot say: values that this very service knows. SCHEMATHESIS_KNOWN is a JSON object of lists: of values by
their format, and under `signed` of requests that the relayer can carry out, each once."""

import json
import os

import schemathesis
from hypothesis import strategies as st

known = json.loads(os.environ["SCHEMATHESIS_KNOWN"])


def digits(alphabet: str, count: int) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, min_size=count, max_size=count).map(lambda text: "0x" + text)


# In one case: a checksum cannot be guessed.
formats = {
    "ethereum-address": digits("0123456789abcdef", 40) | digits("0123456789ABCDEF", 40),
    "relay-id": digits("0123456789abcdef", 64),
}
for name, anybody in formats.items():
    values = known.get(name)
    schemathesis.openapi.format(name, st.sampled_from(values) | anybody if values else anybody)


@schemathesis.hook
def before_call(context, case, kwargs):
    """In place of a request whose signature was made up, one that is signed."""
    if case.operation.label == "POST /relay" and case.meta.generation.mode.is_positive and known["signed"]:
        case.body = known["signed"].pop()
