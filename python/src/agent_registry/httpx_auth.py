"""`httpx.Client(auth=AgentAuth(account, chain_id))`: each request is signed, with a nonce of its own."""

from collections.abc import Generator

import httpx

from .signing import Signer, sign


class AgentAuth(httpx.Auth):
    """For `Client` and `AsyncClient`. A redirect that the client follows is not signed again, and refused."""

    requires_request_body = True

    def __init__(self, signer: Signer, chain_id: int, *, valid_seconds: int = 60):
        self.signer, self.chain_id, self.valid_seconds = signer, chain_id, valid_seconds

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers.update(
            sign(
                request.method,
                str(request.url),
                self.signer,
                self.chain_id,
                headers=request.headers,
                content=request.content,
                valid_seconds=self.valid_seconds,
            )
        )
        yield request
