"""An agent's client written with eth-account alone: asks the relayer for its domain and the nonce, signs with
eth-account's own typed-data function, posts, and prints the relayer's answer.

python eth_account_client.py RELAYER_URL PRIVATE_KEY REGISTRY CALLDATA GAS
"""

import json
import sys
import time
import urllib.error
import urllib.request

from eth_account import Account

relayer, key, registry, data, gas = sys.argv[1:]

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


def ask(path, body=None):
    request = urllib.request.Request(relayer + path, data=body, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


account = Account.from_key(key)
domain = ask("/domain")
request = {
    "from": account.address,
    "to": registry,
    "value": 0,
    "gas": int(gas),
    "nonce": ask(f"/nonce/{account.address}")["next"],
    "deadline": int(time.time()) + 600,
    "data": data,
}
message = {**request, "data": bytes.fromhex(data[2:])}
signed = account.sign_typed_data(domain, TYPES, message)
# Numbers stay JSON numbers, as Python writes them.
body = json.dumps({"request": request, "signature": "0x" + signed.signature.hex().removeprefix("0x")})
print(json.dumps(ask("/relay", body.encode())))
