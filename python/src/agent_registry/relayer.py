"""Registering and attesting through a relayer, which pays for it: the agent signs, by EIP-712, and needs no ETH."""

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from typing import IO, Any, Protocol
from urllib.parse import quote

from eth_abi.abi import encode
from eth_utils.crypto import keccak

TYPES = {
    "ForwardRequest": [
        {"name": "from", "type": "address"},
        {"name": "to", "type": "address"},
        {"name": "value", "type": "uint256"},
        {"name": "gas", "type": "uint256"},
        {"name": "nonce", "type": "uint256"},
        {"name": "deadline", "type": "uint48"},
        {"name": "data", "type": "bytes"},
    ]
}
REGISTER = "registerAgent(address,address,bytes32,bytes32,string,uint256,bool)"
ATTEST = "attestCompliance(uint256)"


class TypedDataSigner(Protocol):
    """An account of eth-account, or anything that signs typed data as it does."""

    @property
    def address(self) -> str: ...

    def sign_typed_data(self, domain_data: Any, message_types: Any, message_data: Any, /) -> Any: ...


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: its target would be sent the API key."""

    def redirect_request(self, *_: Any) -> None:
        return None


class RelayError(Exception):
    """The relayer refused, or the call failed on chain; `code` is the relayer's, where it named one, and `status` that
    of its answer. `TIMEOUT` says that there is no answer, or no end yet."""

    def __init__(self, message: str, code: str | None = None, status: int | None = None):
        super().__init__(message)
        self.code, self.status = code, status

    def passes(self) -> bool:
        """Whether the same request may be answered later."""
        status = self.status or 503
        return self.code != "CALL_REVERTED" and (status in (408, 429) or status >= 500)


def _object(answer: IO[bytes]) -> dict[str, Any]:
    document = json.load(answer)
    if not isinstance(document, dict):
        raise ValueError("the answer is no JSON object")
    return document


class Relayer:
    """A relayer, and the chain and registry that are meant: one that serves others is refused before anything is
    signed. `timeout` bounds the wait for a block, in seconds; `api_key` is one that the relayer has given, and white
    space around it counts for nothing."""

    def __init__(self, url: str, *, chain_id: int, registry: str, timeout: float = 120, api_key: str | None = None):
        self.url, self.chain_id, self.registry, self.timeout = url.rstrip("/"), chain_id, registry, timeout
        self.headers = {"content-type": "application/json"}
        self._opener = urllib.request.build_opener(_NoRedirects)
        key = (api_key or "").strip()
        if not re.fullmatch(r"[!-~]*", key):
            raise ValueError("api_key must be visible ASCII")
        if key:
            self.headers["authorization"] = f"Bearer {key}"

    def register(
        self,
        agent: TypedDataSigner,
        *,
        liable: str,
        scope: str,
        constitution: bytes,
        capabilities: bytes,
        parent: int = 0,
        self_modifying: bool = False,
    ) -> int:
        """Registers the wallet `agent` as an agent for which `liable` is named; the agent's id.

        `constitution` and `capabilities` are the documents' bytes: their Keccak-256 goes on chain, so keep them.
        After a `RelayError` of the code TIMEOUT look at the registry before you call this again: it may have been
        carried out, and a wallet that is registered is refused.
        """
        hashes = [keccak(constitution), keccak(capabilities)]
        types = REGISTER[REGISTER.index("(") + 1 : -1].split(",")
        values = [liable, agent.address, *hashes, scope, parent, self_modifying]
        data, size = keccak(text=REGISTER)[:4] + encode(types, values), len(scope.encode())
        # Each word of the scope is a new storage slot.
        least = 22_100 * -(-size // 32)
        return int(self.relay(agent, data, gas=700_000 + 1_500 * size, least=least)["agentId"])

    def attest(self, signer: TypedDataSigner, agent_id: int) -> dict[str, Any]:
        """Attests for an agent: by its liable wallet, its creator or its own. It lasts for the registry's grace
        period, which is seven days by default."""
        return self.relay(signer, keccak(text=ATTEST)[:4] + encode(["uint256"], [agent_id]), gas=150_000)

    def relay(self, signer: TypedDataSigner, data: bytes, *, gas: int, least: int = 0) -> dict[str, Any]:
        """Signs a call of the registry and has it carried out; the relayer's answer once it is in a block.

        The call gets `gas`, or what the relayer gives at most; less than `least` is a `RelayError` of the code
        GAS_ABOVE_MAXIMUM, before anything is signed.
        """
        domain, status = self._ask("/domain"), self._ask("/status")
        if domain["chainId"] != self.chain_id or status["registry"].lower() != self.registry.lower():
            raise RelayError(f"{self.url} serves chain {domain['chainId']} and registry {status['registry']}")
        most = int(status["limits"]["maxRequestGas"])
        if least > most:
            raise RelayError(f"the scope is too long for {self.url}: shorten it", "GAS_ABOVE_MAXIMUM", 400)
        message = {
            "from": signer.address,
            "to": self.registry,
            "value": 0,
            "gas": min(gas, most),
            "nonce": self._ask(f"/nonce/{quote(signer.address)}")["next"],
            "deadline": int(time.time()) + 600,
            "data": data,
        }
        domain = {name: domain[name] for name in ("name", "version", "chainId", "verifyingContract")}
        signed = signer.sign_typed_data(domain, TYPES, message)
        request = {**message, "data": "0x" + data.hex()}
        body = {"request": request, "signature": "0x" + bytes(signed.signature).hex()}
        place = "/relay/0x" + bytes(signed.message_hash).hex()
        ends, is_taken = time.monotonic() + self.timeout, False
        while True:
            try:
                answer = self._ask(place + "?wait=latest") if is_taken else self._ask("/relay", body)
            except RelayError as error:
                # What was lost on the way may have been taken: it is asked for, and sent again where it was not.
                if is_taken and error.status == 404:
                    is_taken = False
                elif error.code == "ALREADY_RELAYED" and not is_taken:
                    is_taken = True
                elif error.passes() and time.monotonic() < ends:
                    is_taken = error.status is None
                else:
                    raise
            else:
                state = answer.get("state", "executed" if "txHash" in answer else "pending")
                if state == "executed":
                    return answer
                if state != "pending":
                    raise RelayError(answer.get("error", state), answer.get("code"))
                is_taken = True
            if time.monotonic() > ends:
                raise RelayError(f"the relay is not settled: see {self.url}{place}", "TIMEOUT")
            time.sleep(0.5)

    def _ask(self, path: str, body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers)
        try:
            with self._opener.open(request, timeout=self.timeout) as answer:
                return _object(answer)
        except urllib.error.HTTPError as error:
            try:
                problem = _object(error)
            except (OSError, ValueError, http.client.HTTPException):
                problem = {}
            text = problem.get("error", f"HTTP status {error.code}")
            raise RelayError(text, problem.get("code"), error.code) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise RelayError(f"{self.url} does not answer: {error}", "TIMEOUT") from error
