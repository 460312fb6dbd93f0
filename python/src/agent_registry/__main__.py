"""`python -m agent_registry sign` prints the headers of a signed request, for `curl -H @-`; `verify` reads a verdict's
token from standard input and prints its claims, or why it does not admit, with status 1; 2 where it cannot tell."""

import argparse
import json
import sys
from pathlib import Path

import jwt
from eth_account import Account

from .signing import sign
from .verdicts import Keys, NotAdmitted, verify


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m agent_registry", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    signing = commands.add_parser("sign")
    signing.add_argument("--key", type=Path, required=True, help="file with the wallet's private key, in hex digits")
    signing.add_argument("--chain", type=int, required=True, help="chain id")
    signing.add_argument("--method", default="GET")
    signing.add_argument("--content-type")
    signing.add_argument("--content", type=Path, help="file with the content")
    signing.add_argument("url")
    verifying = commands.add_parser("verify")
    verifying.add_argument("--keys", required=True, help="the issuer's key set: its URL, or a file that it was saved in")
    for option in ("issuer", "audience", "keyid", "registry"):
        verifying.add_argument(f"--{option}", required=True)
    given = parser.parse_args()
    if given.command == "sign":
        try:
            return print_headers(given)
        except (OSError, ValueError) as error:
            print(error, file=sys.stderr)
            return 1
    try:
        claims = verify(
            sys.stdin.read().strip(),
            keys_of(given.keys),
            issuer=given.issuer,
            audience=given.audience,
            keyid=given.keyid,
            registry=given.registry,
        )
    except NotAdmitted as error:
        print(error, file=sys.stderr)
        return 1
    except (OSError, ValueError, jwt.PyJWTError, TypeError, AttributeError) as error:
        print(f"{given.keys}: {error}", file=sys.stderr)
        return 2
    print(json.dumps(claims))
    return 0


def keys_of(place: str) -> Keys | str:
    if "://" in place:
        return place
    return jwt.PyJWKSet.from_dict(json.loads(Path(place).read_text()))


def print_headers(given: argparse.Namespace) -> int:
    # Windows has no such modes.
    if sys.platform != "win32" and given.key.stat().st_mode & 0o077:
        print(f"{given.key}: others can read it; chmod 600", file=sys.stderr)
        return 1
    try:
        account = Account.from_key(given.key.read_text().strip())
    except ValueError as error:
        raise ValueError(f"{given.key}: {error}") from error
    headers = {"content-type": given.content_type} if given.content_type else {}
    content = given.content.read_bytes() if given.content else b""
    signed = sign(given.method, given.url, account, given.chain, headers=headers, content=content)
    for name, value in {**headers, **signed}.items():
        print(f"{name}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
