"""Verdicts as signed tokens (ES256), as the read API and gates issue them.

A verdict is no credential: it does not say that the party that shows it holds the wallet. The signature of the request
that it came with does, and `keyid` is of that signature.
"""

from functools import lru_cache
from typing import Literal, TypedDict, cast

import jwt

Keys = jwt.PyJWKClient | jwt.PyJWKSet


class _AsOf(TypedDict):
    blockNumber: int


class AsOf(_AsOf, total=False):
    """The block that the registry was read at."""

    blockTimestamp: str
    parentHash: str


class _Verdict(TypedDict):
    iss: str
    sub: str
    aud: str
    iat: int
    exp: int
    decision: Literal["provision", "request_renewal", "deny"]
    reasons: list[str]
    registry: str
    asOf: AsOf


class Verdict(_Verdict, total=False):
    """The claims of a verified verdict. A token may have further ones."""

    jti: str
    liable: str
    liability: dict[str, object]


class NotAdmitted(Exception):
    """The token is not an issuer's verdict for this site that admits this wallet; the message says why not."""


class _KeySet(jwt.PyJWKClient):
    """What is fetched and is no key set says as little of a token as no answer."""

    def get_signing_keys(self, refresh: bool = False) -> list[jwt.PyJWK]:
        try:
            return super().get_signing_keys(refresh)
        except jwt.PyJWKClientConnectionError:
            raise
        except Exception as error:
            # PyJWT passes on what its parsers raise.
            raise jwt.PyJWKClientConnectionError(f"{self.uri} is no key set: {error}") from error


@lru_cache(maxsize=64)
def keys_at(url: str) -> jwt.PyJWKClient:
    """The issuer's keys, such as `https://kya.example/.well-known/jwks.json`: fetched when first needed, kept for
    five minutes, fetched again where a token names another key."""
    return _KeySet(url, timeout=10)


def verify(
    token: str,
    keys: Keys | str,
    *,
    issuer: str,
    audience: str,
    keyid: str,
    registry: str,
    leeway: float = 5,
) -> Verdict:
    """The claims of a verdict that admits; else raises `NotAdmitted`.

    `keys` is the URL of the issuer's key set, or a set that was saved. `audience` is the origin of your site,
    `keyid` the `eip155:<chain>:<address>` of the signature of the request that the token came with, `registry` the
    `eip155:<chain>:<address>` of the registry that you trust. Keys that cannot be fetched or read
    raise `jwt.PyJWKClientConnectionError`: nothing is known of the token then.
    """
    if isinstance(keys, str):
        keys = keys_at(keys)
    for name, value in (("issuer", issuer), ("audience", audience), ("keyid", keyid), ("registry", registry)):
        # PyJWT skips the check of a claim that is expected to be None.
        if not isinstance(value, str) or not value:
            raise TypeError(f"{name} must be a string that is not empty")
    try:
        header = jwt.get_unverified_header(token)
        if header.get("typ") != "kya-verdict+jwt":
            raise NotAdmitted("typ: is not kya-verdict+jwt")
        key = keys.get_signing_key_from_jwt(token) if isinstance(keys, jwt.PyJWKClient) else keys[header.get("kid", "")]
        claims = jwt.decode(
            token,
            key,
            algorithms=["ES256"],
            issuer=issuer,
            audience=audience,
            leeway=leeway,
            options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )
    except jwt.PyJWKClientConnectionError:
        raise
    except (jwt.PyJWTError, KeyError) as error:
        raise NotAdmitted(str(error) or type(error).__name__) from error
    # Addresses are written in mixed case (ERC-55), too.
    for name, wanted in (("sub", keyid), ("registry", registry)):
        if str(claims.get(name)).lower() != wanted.lower():
            raise NotAdmitted(f"{name}: is another one")
    if claims.get("decision") != "provision":
        raise NotAdmitted(f"decision: {claims.get('decision')}, {claims.get('reasons')}")
    return cast(Verdict, claims)
