"""An agent's signed requests (ERC-8128), by http-message-signatures and eth-account, and by this project's package with
httpx and requests: sends a GET with a query and a POST with content, and prints what came back.

python signed_requests.py ORIGIN CHAIN_ID PRIVATE_KEY
"""

import base64
import datetime
import json
import secrets
import sys
import time
import urllib.error
import urllib.request

import httpx
import requests
from agent_registry import httpx_auth, requests_auth
from eth_account import Account
from eth_account.messages import encode_defunct
from http_message_signatures import HTTPMessageSigner, HTTPSignatureAlgorithm

ORIGIN, CHAIN, KEY = sys.argv[1:]
ACCOUNT = Account.from_key(KEY)


class Ethereum(HTTPSignatureAlgorithm):
    """EIP-191 by an account; its id is never sent."""

    algorithm_id = "eip191"


class Request:
    """What the library asks of a request."""

    def __init__(self, method: str, target: str, body: bytes, headers: dict[str, str]):
        self.method, self.url, self.body, self.headers = method, ORIGIN + target, body, headers


def send(request: Request) -> dict:
    components = ["@query", "@path", "@method", "@authority", "@scheme"]
    if request.body:
        components += ["content-type", "content-digest"]
    signer = HTTPMessageSigner(signature_algorithm=Ethereum)
    created = datetime.datetime.now(datetime.timezone.utc)
    prepared = signer.prepare(
        request,
        key_id=f"eip155:{CHAIN}:{ACCOUNT.address.lower()}",
        created=created,
        expires=created + datetime.timedelta(seconds=60),
        nonce=secrets.token_urlsafe(16),
        tag="erc8128",
        include_alg=False,
        covered_component_ids=components,
        body=request.body or None,
    )
    signature = ACCOUNT.sign_message(encode_defunct(prepared.signature_base)).signature
    signer.apply(request, prepared, bytes(signature))
    return outcome("http-message-signatures (Python)", request)


def by_hand() -> dict:
    """The lines of docs/signing-requests.md."""
    host, path, now, account = ORIGIN.split("://")[1], "/items", int(time.time()), ACCOUNT
    params = f'("@scheme" "@authority" "@method" "@path" "@query");created={now};expires={now + 60};nonce="{secrets.token_hex(16)}";keyid="eip155:{CHAIN}:{account.address.lower()}";tag="erc8128"'
    base = f'"@scheme": http\n"@authority": {host}\n"@method": GET\n"@path": {path}\n"@query": ?\n"@signature-params": {params}'
    headers = {"Signature-Input": f"request={params}", "Signature": f"request=:{base64.b64encode(account.sign_message(encode_defunct(text=base)).signature).decode()}:"}
    return outcome("eth-account", Request("GET", path, b"", headers))


def outcome(client: str, request: Request) -> dict:
    outgoing = urllib.request.Request(
        request.url, data=request.body or None, headers=request.headers, method=request.method
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(outgoing) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    return {"client": client, "method": request.method, "status": status, "body": text}


def by_package() -> list[dict]:
    outcomes = []
    for client, auth in [(httpx, httpx_auth), (requests, requests_auth)]:
        agent = auth.AgentAuth(ACCOUNT, int(CHAIN))
        for method, target, json_content in [("GET", "/items?view=full&b=%20", None), ("POST", "/orders", {"amount": "1€"})]:
            answer = client.request(method, ORIGIN + target, json=json_content, auth=agent)
            name = f"agent-registry, {client.__name__}"
            outcomes.append({"client": name, "method": method, "status": answer.status_code, "body": answer.text})
    return outcomes


ORDER = Request("POST", "/orders", b'{"amount":"100"}', {"Content-Type": "application/json"})
print(json.dumps([send(Request("GET", "/items?view=full", b"", {})), send(ORDER), by_hand(), *by_package()]))
