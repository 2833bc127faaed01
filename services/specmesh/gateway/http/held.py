"""A bound on the bytes of all requests in a gateway: bodies that are arriving, and prompts that are
being answered. Without it, a few callers could fill the memory.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from specmesh.gateway.errors import ApiError, overloaded


class Held:
    """The bytes that one request holds until it ends."""

    def __init__(self, total: HeldBytes) -> None:
        self._total = total
        self._num_bytes = 0

    def add(self, num_bytes: int, what: str = "the body times n", param: str | None = None) -> None:
        """Hold ``num_bytes`` more of ``what``, which ``param`` has asked for. Raises ``ApiError``:
        413 if the request alone exceeds the bound, 429 if all requests together do."""
        if self._num_bytes + num_bytes > self._total.max_bytes:
            raise ApiError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"more than {self._total.max_bytes} bytes for {what}",
                param=param,
                code="body_too_large",
            )
        if self._total.num_bytes + num_bytes > self._total.max_bytes:
            raise overloaded("the requests being answered already hold too many bytes")
        self._num_bytes += num_bytes
        self._total.num_bytes += num_bytes

    @property
    def num_bytes(self) -> int:
        """The bytes that the request holds."""
        return self._num_bytes

    def settle(self, num_bytes: int) -> None:
        """Hold ``num_bytes`` in place of a body that has been read. Raises as ``add`` does."""
        self.release()
        self.add(num_bytes)

    def repeat(self, num_choices: int, num_prompts: int = 1, prompt_bytes: int = 0) -> None:
        """Hold what the calls hold, of which there is one for each choice of each prompt: its
        prompt (all of them take ``prompt_bytes``), and everything else that was asked for.
        Raises as ``add`` does."""
        shared = self._num_bytes - prompt_bytes
        self.add((prompt_bytes + shared * num_prompts) * num_choices - self._num_bytes)

    def release(self) -> None:
        """Stop holding any bytes."""
        self._total.num_bytes -= self._num_bytes
        self._num_bytes = 0


class HeldBytes:
    """ASGI middleware that sets ``request.state.held`` to the request's ``Held``.

    Invariant: ``num_bytes``, the sum over all requests, is at most ``max_bytes``.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self.max_bytes = max_bytes
        self.num_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        held = scope.setdefault("state", {})["held"] = Held(self)
        try:
            await self._app(scope, receive, send)
        finally:
            held.release()
