"""A remote signer on eth-account: `eth_signTransaction` over JSON-RPC, as Web3Signer has it.

python remote_signer.py PRIVATE_KEY OTHER_PRIVATE_KEY

`POST /mode` with a word makes it misbehave: `slow` (30 s), `refuse`, `other` (signs with the other key), `change`
(signs another transaction), `status` (answers 502), `no calls` (refuses transactions with calldata), `good`. `POST /bare` is the signer that answers with the bytes, `POST /` the one that answers with
an object, as geth does. It prints the port that it listens on.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from eth_account import Account

keys = sys.argv[1:3]
mode = "good"


def answer(call):
    if mode == "slow":
        time.sleep(30)
    if mode == "refuse":
        raise ValueError("this signer signs nothing today")
    if mode == "no calls" and len(call.get("data") or call.get("input") or "0x") > 2:
        raise ValueError("this signer signs no calls")
    account = Account.from_key(keys[1] if mode == "other" else keys[0])
    named = {key: value for key, value in call.items() if key != "from"}
    if mode != "other" and call["from"].lower() != account.address.lower():
        raise ValueError("unknown account " + call["from"])
    if mode == "change":
        named["gas"] = hex(int(named["gas"], 16) + 1)
    return "0x" + account.sign_transaction(named).raw_transaction.hex().removeprefix("0x")


class Signer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        global mode
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/mode":
            mode = body.decode()
            return self.send(200, {})
        question = json.loads(body)
        reply = {"jsonrpc": "2.0", "id": question["id"]}
        if mode == "status":
            return self.send(502, "bad gateway")
        try:
            assert question["method"] == "eth_signTransaction", question["method"]
            raw = answer(question["params"][0])
            reply["result"] = raw if self.path.startswith("/bare") else {"raw": raw, "tx": {}}
        except Exception as error:
            reply["error"] = {"code": -32000, "message": str(error)}
        self.send(200, reply)

    def send(self, status, body):
        body = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except BrokenPipeError:
            pass

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Signer)
print(f"remote signer listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
