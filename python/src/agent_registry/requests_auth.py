"""`requests.get(url, auth=AgentAuth(account, chain_id))`: each request is signed, with a nonce of its own."""

from requests import PreparedRequest
from requests.auth import AuthBase
from urllib3.util import parse_url

from .signing import Signer, sign


class AgentAuth(AuthBase):
    """Redirects are not signed again, and refused: use `allow_redirects=False`. So are an adapter's own retries."""

    def __init__(self, signer: Signer, chain_id: int, *, valid_seconds: int = 60):
        self.signer, self.chain_id, self.valid_seconds = signer, chain_id, valid_seconds

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        content = request.body or b""
        if isinstance(content, str):
            request.body = content = content.encode()
        if not isinstance(content, bytes):
            raise TypeError("a signed request needs its content as bytes or str: a stream has no digest beforehand")
        if request.method is None or request.url is None:
            raise TypeError("the request is not prepared")
        # urllib3 sends a URL in its own form, which is not that of requests where `params` is a text.
        request.url = parse_url(request.url).url
        request.headers.update(
            sign(
                request.method,
                request.url,
                self.signer,
                self.chain_id,
                headers=request.headers,
                content=content,
                valid_seconds=self.valid_seconds,
            )
        )
        return request
