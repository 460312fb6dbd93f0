"""Registered AI agents: signed requests (ERC-8128), signed verdicts, and registration through a relayer.

The adapters are `agent_registry.httpx_auth` and `agent_registry.requests_auth`.
"""

from .relayer import Relayer, RelayError
from .signing import Signer, sign
from .verdicts import NotAdmitted, Verdict, keys_at, verify

__all__ = ["NotAdmitted", "RelayError", "Relayer", "Signer", "Verdict", "keys_at", "sign", "verify"]
