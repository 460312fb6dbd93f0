"""What an agent sends to a service behind a gate: a request signed with the key of its wallet, by ERC-8128 (draft of
August 2026) over RFC 9421. The signature admits one request, within `valid_seconds`."""

import base64
import hashlib
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from eth_account.messages import SignableMessage, encode_defunct

DEFAULT_PORTS = {"http": 80, "https": 443}


class Signer(Protocol):
    """An account of eth-account, or anything with its two members: a remote signer, or a smart account, whose
    `signature` may be of any length (ERC-1271)."""

    @property
    def address(self) -> str: ...

    def sign_message(self, signable_message: SignableMessage, /) -> Any: ...


def sign(
    method: str,
    url: str,
    signer: Signer,
    chain_id: int,
    *,
    headers: Mapping[str, str | bytes] | None = None,
    content: bytes = b"",
    valid_seconds: int = 60,
    nonce: str | None = None,
    now: float | None = None,
) -> dict[str, str]:
    """The headers that sign a request: to be added to `headers`, where they replace those of the same name.

    `url` is the one that is sent, percent-encoded, as clients prepare it. `headers` are all that are sent: of these
    `host`, `content-type` and `content-digest` are signed. Values may be bytes, as requests takes them. A retry needs a signature of its own.
    """
    address = signer.address.lower()
    if not re.fullmatch(r"0x[0-9a-f]{40}", address):
        raise ValueError("signer.address must be 0x and 40 hexadecimal digits")
    if isinstance(chain_id, bool) or not isinstance(chain_id, int) or chain_id < 1:
        raise ValueError("chain_id must be a positive whole number")
    if valid_seconds < 1:
        raise ValueError("valid_seconds must be at least 1")
    once = secrets.token_urlsafe(18) if nonce is None else nonce
    if not re.fullmatch(r'[ !#-\[\]-~]{1,128}', once):
        raise ValueError('nonce must be 1 to 128 characters of ASCII without " and \\')
    if not re.fullmatch(r"[!-~]+", url):
        raise ValueError("url must be percent-encoded ASCII")
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError("url must be http or https, with a host")

    fields: dict[str, str] = {}
    for name, value in (headers or {}).items():
        if name.lower() in ("host", "content-type", "content-digest"):
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            fields[name.lower()] = text.strip(" \t")
    added: dict[str, str] = {}
    # Of no content, too, except of GET and HEAD: not every proxy tells its gate that there is none.
    if content or (method not in ("GET", "HEAD") and "content-digest" not in fields):
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        added["content-digest"] = fields["content-digest"] = f"sha-256=:{digest}:"
    values: dict[str, str] = {
        "@scheme": parts.scheme,
        "@authority": authority(fields.get("host") or parts.netloc.rpartition("@")[2], parts.scheme),
        "@method": method,
        "@path": parts.path or "/",
        "@query": "?" + parts.query,
    }
    # Both are signed whenever they are sent.
    values.update({name: fields[name] for name in ("content-digest", "content-type") if name in fields})
    created = int(time.time() if now is None else now)
    components = " ".join(f'"{name}"' for name in values)
    parameters = (
        f'({components});created={created};expires={created + valid_seconds};nonce="{once}"'
        f';keyid="eip155:{chain_id}:{address}";tag="erc8128"'
    )
    lines = [f'"{name}": {value}' for name, value in values.items()]
    base = "\n".join([*lines, f'"@signature-params": {parameters}'])
    signature = bytes(signer.sign_message(encode_defunct(text=base)).signature)
    added["signature-input"] = f"request={parameters}"
    added["signature"] = f"request=:{base64.b64encode(signature).decode()}:"
    return added


def authority(host: str, scheme: str) -> str:
    """RFC 9421, 2.2.3: in lower case, without the scheme's default port."""
    return host.lower().removesuffix(f":{DEFAULT_PORTS[scheme]}")
