"""What needs no other side: the vector of ERC-8128, what clients send, what is refused before it is signed. Services
that admit these requests, and tokens of a real issuer, are in the end-to-end tests."""

import http.server
import io
import json
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import jwt
import requests
from cryptography.hazmat.primitives.asymmetric import ec
from eth_account import Account

from agent_registry import NotAdmitted, RelayError, Relayer, requests_auth, sign, verify
from agent_registry.__main__ import main
from agent_registry.httpx_auth import AgentAuth as HttpxAuth
from agent_registry.requests_auth import AgentAuth as RequestsAuth

ACCOUNT = Account.from_key((1).to_bytes(32, "big"))
URL = "https://api.example/items?view=full"
DIGEST = "sha-256=:k6I5cakU5erL8KjSUVTNownDwccvu5kU1Hxg88toFYg=:"
CONTENT = b'{"hello":"world"}'


@contextmanager
def serving(
    status: int, texts: dict[str, str], location: str = "", posts: list[bytes] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """A server on a free port with these paths, and these answers to what is posted; its URL, and the paths that it was
    asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status if self.path in texts else 404)
            self.send_header("location", location + self.path)
            self.end_headers()
            self.wfile.write(texts.get(self.path, "").encode())

        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            self.wfile.write((posts or []).pop(0))

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


class Signing(unittest.TestCase):
    def test_the_vector_of_the_erc(self) -> None:
        # It lists the digest before the type, as here; the order that is received decides.
        signed = sign(
            "POST",
            URL,
            ACCOUNT,
            1,
            headers={"Content-Type": "application/json"},
            content=CONTENT,
            nonce="EjRWeJCrze8BI0VniavN7w",
            now=1_700_000_000,
        )
        self.assertEqual(signed["content-digest"], DIGEST)
        self.assertEqual(
            signed["signature"],
            "request=:/BpEToskxkMJ65uRmaNUPiBwbwwg6z3CxEDJJwEYREIx1Hwn85Z1L8XlRpILGx4q80yeiNugYzaUsVPWiPcB0Bs=:",
        )
        self.assertIn(';expires=1700000060;nonce="EjRWeJCrze8BI0VniavN7w";keyid="eip155:1:0x7e5f', signed["signature-input"])

    def test_what_is_signed_depends_on_what_is_sent(self) -> None:
        for method, headers, content, expected in [
            ("GET", {}, b"", ()),
            ("GET", {"content-type": "text/plain"}, b"", ("content-type",)),
            ("GET", {}, b"x", ("content-digest",)),
            ("DELETE", {}, b"", ("content-digest",)),
            ("POST", {"Content-Digest": "of other content"}, b"", ("content-digest",)),
        ]:
            with self.subTest(method=method, headers=headers):
                signed = sign(method, URL, ACCOUNT, 1, headers=headers, content=content)
                components = ("@scheme", "@authority", "@method", "@path", "@query", *expected)
                fields = " ".join(f'"{name}"' for name in components)
                self.assertTrue(signed["signature-input"].startswith(f"request=({fields});"), signed)
                self.assertEqual("content-digest" in signed, method == "DELETE" or content == b"x")
        first, second = (sign("GET", URL, ACCOUNT, 1)["signature"] for _ in range(2))
        self.assertNotEqual(first, second, "a nonce of its own")

    def test_equal_urls_are_signed_alike(self) -> None:
        signature = {"signer": ACCOUNT, "chain_id": 1, "nonce": "a", "now": 0}
        expected = sign("GET", "https://api.example/", **signature)
        for url, headers in [
            ("https://API.example:443", {}),
            ("https://user:word@api.example/?#part", {}),
            ("https://10.0.0.1/", {"Host": "api.example"}),
        ]:
            self.assertEqual(sign("GET", url, headers=headers, **signature), expected, url)
        other = sign("GET", "https://api.example:8443/", **signature)
        self.assertNotEqual(other, expected)

    def test_what_would_be_signed_wrongly_is_refused(self) -> None:
        for words, change in [
            ("nonce", {"nonce": 'a";tag="other'}),
            ("nonce", {"nonce": "a\nb"}),
            ("nonce", {"nonce": "ä"}),
            ("nonce", {"nonce": ""}),
            ("chain_id", {"chain_id": 0}),
            ("valid_seconds", {"valid_seconds": 0}),
            ("url", {"url": "https://api.example/ä"}),
            ("url", {"url": "https://api.example/a\nb"}),
            ("url", {"url": "/items"}),
        ]:
            with self.subTest(**change), self.assertRaisesRegex(ValueError, words):
                sign(**{"method": "GET", "url": URL, "signer": ACCOUNT, "chain_id": 1, **change})

    def test_both_clients_send_what_was_signed(self) -> None:
        client = httpx.Client(auth=HttpxAuth(ACCOUNT, 1), transport=httpx.MockTransport(lambda _: httpx.Response(200)))
        of_httpx = client.post(URL, content=CONTENT).request
        of_requests = requests.Request("POST", URL, data=CONTENT.decode(), auth=RequestsAuth(ACCOUNT, 1)).prepare()
        got = requests.Request("GET", URL, data=CONTENT, auth=RequestsAuth(ACCOUNT, 1)).prepare()
        of_get = [(client.request("GET", URL, content=CONTENT).request, CONTENT), (got, got.body)]
        for sent, content in [(of_httpx, of_httpx.content), (of_requests, of_requests.body), *of_get]:
            self.assertEqual((sent.headers["content-digest"], content), (DIGEST, CONTENT))
            self.assertIn(";expires=", sent.headers["signature-input"])
        with serving(200, {}) as (url, asked):
            auth = RequestsAuth(ACCOUNT, 1)
            for params in ("a=[1]|2", "a=b%2fc", {"a": "[1]/é"}):
                with self.subTest(params), patch.object(requests_auth, "sign", wraps=sign) as signing:
                    requests.get(f"{url}/a b", params=params, auth=auth)
                    self.assertEqual(url + asked[-1], signing.call_args.args[1])
        of_bytes = {"X-Trace": b"abc", "Content-Type": b"text/plain ", "Host": b"other.example"}
        with patch.object(requests_auth, "sign", wraps=sign) as signing:
            requests.Request("POST", URL, headers=of_bytes, data=CONTENT, auth=RequestsAuth(ACCOUNT, 1)).prepare()
        # The same values as text are signed alike.
        arguments = {**signing.call_args.kwargs, "nonce": "a", "now": 0}
        texts = {name: value.decode() for name, value in of_bytes.items()}
        expected = sign(*signing.call_args.args, **{**arguments, "headers": texts})
        self.assertEqual(sign(*signing.call_args.args, **arguments), expected)
        self.assertIn('"content-type"', expected["signature-input"])
        with self.assertRaisesRegex(TypeError, "stream"):
            requests.Request("POST", URL, data=iter([b"a"]), auth=RequestsAuth(ACCOUNT, 1)).prepare()


class Printing(unittest.TestCase):
    def test_what_cannot_be_signed_is_one_line(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            good, short, binary, readable = (Path(directory) / name for name in ("good", "short", "binary", "readable"))
            for file, content in [(good, b"07" * 32), (short, b"07" * 31), (binary, b"\xff" * 64), (readable, b"07" * 32)]:
                file.write_bytes(content)
                file.chmod(0o600)
            readable.chmod(0o640)
            for key, chain, url, expected in [
                (Path(directory) / "none", "1", URL, "No such file"),
                (short, "1", URL, "short: .*32 bytes"),
                (binary, "1", URL, "binary: "),
                (readable, "1", URL, "others can read it"),
                (good, "0", URL, "chain_id must be"),
                (good, "1", "api.example/items", "url must be http or https"),
            ]:
                with self.subTest(expected):
                    words = ["sign", "--key", str(key), "--chain", chain, url]
                    ended = subprocess.run([sys.executable, "-m", "agent_registry", *words], capture_output=True, text=True)
                    self.assertEqual((ended.returncode, ended.stdout, ended.stderr.count("\n")), (1, "", 1), ended.stderr)
                    self.assertRegex(ended.stderr, expected)

    def test_a_key_file_has_no_modes_on_windows(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            key, printed = Path(directory) / "agent.key", io.StringIO()
            key.write_text("07" * 32)
            key.chmod(0o666)
            words = ["agent_registry", "sign", "--key", str(key), "--chain", "1", URL]
            with patch.object(sys, "argv", words), patch.object(sys, "platform", "win32"), redirect_stdout(printed):
                self.assertEqual(main(), 0)
            self.assertIn("signature-input: request=", printed.getvalue())


class Verifying(unittest.TestCase):
    def test_a_saved_key_set_verifies_and_keys_out_of_reach_say_nothing_of_the_token(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        jwk = {**jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "a", "alg": "ES256"}
        expected = {
            "issuer": "https://kya.example",
            "audience": "https://shop.example",
            "keyid": "eip155:1:0x0a",
            "registry": "eip155:1:0x0b",
        }
        now = int(time.time())
        claims = {
            "iss": expected["issuer"],
            "aud": expected["audience"],
            "sub": expected["keyid"],
            "registry": expected["registry"],
            "iat": now,
            "exp": now + 60,
            "decision": "provision",
            "reasons": [],
        }
        token = jwt.encode(claims, key, "ES256", {"kid": "a", "typ": "kya-verdict+jwt"})
        saved = jwt.PyJWKSet.from_dict({"keys": [jwk]})
        self.assertEqual(verify(token, saved, **expected), claims)
        checksummed = {"keyid": "eip155:1:0x0A", "registry": "eip155:1:0x0B"}
        self.assertEqual(verify(token, saved, **{**expected, **checksummed}), claims)
        for name, other in (("keyid", "eip155:1:0x0b"), ("registry", "eip155:1:0x0a")):
            with self.assertRaisesRegex(NotAdmitted, "is another one"):
                verify(token, saved, **{**expected, name: other})
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "jwks.json"
            options = [word for name, value in expected.items() for word in (f"--{name}", value)]
            program = [sys.executable, "-m", "agent_registry", "verify", *options, "--keys", str(file)]
            for keys, status in [(None, 2), ("{}", 2), ("[]", 2), ("no JSON", 2), (json.dumps({"keys": [jwk]}), 0)]:
                if keys is not None:
                    file.write_text(keys)
                ended = subprocess.run(program, input=token, capture_output=True, text=True)
                self.assertEqual(ended.returncode, status, ended.stderr)
                self.assertNotIn("Traceback", ended.stderr)
            self.assertEqual(json.loads(ended.stdout), claims)
        texts = {"/none": "{}", "/list": "[]", "/text": "<html>", "/other": '{"keys":["a"]}', "/keys": json.dumps({"keys": [jwk]})}
        with serving(200, texts) as (url, _):
            for path in ("/none", "/list", "/text", "/other"):
                with self.subTest(path), self.assertRaises(jwt.PyJWKClientConnectionError):
                    verify(token, url + path, **expected)
            ended = subprocess.run([*program[:-1], url + "/none"], input=token, capture_output=True, text=True)
            self.assertEqual(ended.returncode, 2, ended.stderr)
            self.assertEqual(verify(token, url + "/keys", **expected), claims)
            unknown = jwt.encode(claims, key, "ES256", {"kid": "b", "typ": "kya-verdict+jwt"})
            with self.assertRaisesRegex(NotAdmitted, "signing key"):
                verify(unknown, url + "/keys", **expected)
        plain = jwt.encode(claims, key, "ES256", {"kid": "a"})
        with self.assertRaisesRegex(NotAdmitted, "typ"):
            verify(plain, saved, **expected)
        with self.assertRaises(jwt.PyJWKClientConnectionError):
            verify(token, "http://127.0.0.1:9/jwks.json", **expected)
        for name in expected:
            with self.subTest(name), self.assertRaisesRegex(TypeError, name):
                verify(token, saved, **{**expected, name: None})


class Relaying(unittest.TestCase):
    def test_nothing_is_signed_for_another_chain_or_registry(self) -> None:
        registry = "0x" + "11" * 20

        class Served(Relayer):
            def _ask(self, path: str, body: object = None) -> dict[str, object]:
                return {"/domain": {"chainId": 1}, "/status": {"registry": registry}}[path]

        for chain_id, other in [(2, registry), (1, "0x" + "22" * 20)]:
            with self.assertRaisesRegex(RelayError, "serves chain 1"):
                Served("http://relayer.example", chain_id=chain_id, registry=other).attest(None, 7)

    def test_a_redirect_is_not_followed_and_gets_no_api_key(self) -> None:
        with serving(200, {"/domain": "{}"}) as (other, asked):
            for status in (301, 302, 303, 307, 308):
                with serving(status, {"/domain": ""}, other) as (url, _):
                    relayer = Relayer(url, chain_id=1, registry="0x" + "11" * 20, api_key="rk_a")
                    with self.subTest(status), self.assertRaisesRegex(RelayError, f"HTTP status {status}"):
                        relayer.attest(ACCOUNT, 7)
        self.assertEqual(asked, [])

    def test_a_relay_whose_answer_is_lost_is_asked_for_and_sent_again_where_it_was_not_taken(self) -> None:
        registry, agent = "0x" + "11" * 20, Account.create()
        domain = {"name": "MinimalForwarder", "version": "1", "chainId": 1, "verifyingContract": "0x" + "22" * 20}
        executed = {"state": "executed", "txHash": "0x" + "33" * 32}
        status = {"registry": registry, "limits": {"maxRequestGas": 2_000_000}}
        lost, unknown = RelayError("no answer", "TIMEOUT"), RelayError("no such relay", "UNKNOWN", 404)
        for answers, expected in [
            ([lost, executed], ["POST", "GET"]),
            ([lost, unknown, {"state": "pending"}, executed], ["POST", "GET", "POST", "GET"]),
            ([RelayError("busy", "BUSY", 503), RelayError("there", "ALREADY_RELAYED", 409), executed], ["POST", "POST", "GET"]),
        ]:
            asked: list[tuple[str, object]] = []

            class Served(Relayer):
                def _ask(self, path: str, body: object = None) -> dict[str, object]:
                    known = {"/domain": domain, "/status": status, f"/nonce/{agent.address}": {"next": 0}}
                    if path in known:
                        return known[path]
                    asked.append(("GET" if body is None else "POST", body))
                    answer = answers.pop(0)
                    if isinstance(answer, RelayError):
                        raise answer
                    return answer

            relayer = Served("http://relayer.example", chain_id=1, registry=registry, api_key="rk_a")
            self.assertEqual(relayer.headers["authorization"], "Bearer rk_a")
            self.assertEqual(relayer.attest(agent, 7), executed)
            self.assertEqual([method for method, _ in asked], expected)
            sent = [body for method, body in asked if method == "POST"]
            self.assertTrue(all(body == sent[0] for body in sent), "the same bytes")

    def test_a_long_scope_gets_more_gas_and_one_that_takes_more_than_the_relayer_gives_is_refused(self) -> None:
        registry, agent = "0x" + "11" * 20, Account.create()
        domain = {"name": "MinimalForwarder", "version": "1", "chainId": 1, "verifyingContract": "0x" + "22" * 20}
        status = {"registry": registry, "limits": {"maxRequestGas": 2_000_000}}
        sent: list[int] = []

        class Served(Relayer):
            def _ask(self, path: str, body: Any = None) -> dict[str, Any]:
                if body is not None:
                    sent.append(body["request"]["gas"])
                    return {"txHash": "0x" + "33" * 32, "agentId": 7}
                return {"/domain": domain, "/status": status, f"/nonce/{agent.address}": {"next": 0}}[path]

        relayer = Served("http://relayer.example", chain_id=1, registry=registry)
        documents = {"liable": agent.address, "constitution": b"", "capabilities": b""}
        for scope in ("", "ü" * 200, "Does what it is told. " * 60):
            self.assertEqual(relayer.register(agent, scope=scope, **documents), 7)
        self.assertEqual(sent, [700_000, 1_300_000, 2_000_000])
        with self.assertRaisesRegex(RelayError, "scope is too long") as refused:
            relayer.register(agent, scope="x" * 10_000, **documents)
        self.assertEqual((refused.exception.code, len(sent)), ("GAS_ABOVE_MAXIMUM", 3))

    def test_a_relay_is_settled_after_an_answer_that_is_cut_or_no_object(self) -> None:
        registry, agent = "0x" + "11" * 20, Account.create()
        domain = {"name": "MinimalForwarder", "version": "1", "chainId": 1, "verifyingContract": "0x" + "22" * 20}
        executed = {"state": "executed", "txHash": "0x" + "33" * 32}
        status = {"registry": registry, "limits": {"maxRequestGas": 2_000_000}}
        texts = {"/domain": domain, "/status": status, f"/nonce/{agent.address}": {"next": 0}}
        good = b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(executed).encode()
        for lost in (b'HTTP/1.1 502 Bad Gateway\r\ncontent-length: 99\r\n\r\n{"', b"HTTP/1.1 503 Busy\r\n\r\nnull"):
            answers = {path: json.dumps(text) for path, text in texts.items()}
            with self.subTest(lost), serving(200, answers, posts=[lost, good]) as (url, asked):
                self.assertEqual(Relayer(url, chain_id=1, registry=registry).attest(agent, 7), executed)
                self.assertEqual(asked.count("/relay"), 2)
        for text in ("null", "[]"):
            with serving(200, {"/domain": text}) as (url, _), self.assertRaisesRegex(RelayError, "is no JSON object"):
                Relayer(url, chain_id=1, registry=registry).attest(agent, 7)

    def test_an_api_key_is_sent_without_white_space_and_not_told_where_it_cannot_be_sent(self) -> None:
        place = {"chain_id": 1, "registry": "0x" + "11" * 20}
        for key, expected in [("rk_a\n", "Bearer rk_a"), ("\n", None), ("", None), (None, None)]:
            relayer = Relayer("http://relayer.example", api_key=key, **place)
            self.assertEqual(relayer.headers.get("authorization"), expected)
        for key in ("rk_a\nrk_b", "rk_ä", "rk a"):
            with self.subTest(key), self.assertRaisesRegex(ValueError, "api_key must be") as refused:
                Relayer("http://relayer.example", api_key=key, **place)
            self.assertNotIn("rk", str(refused.exception))

    def test_a_call_that_reverts_is_not_sent_again(self) -> None:
        refused = RelayError("reverts", "CALL_REVERTED", 503)
        self.assertFalse(refused.passes())


if __name__ == "__main__":
    unittest.main()
