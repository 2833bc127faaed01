"""A bound on the bytes of all requests that a gateway holds: bodies that arrive, and prompts whose
answers are under way. Without it a few callers could fill its memory.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from specmesh.gateway.errors import ApiError, overloaded


class Held:
    """The bytes that one request holds, until it is over."""

    def __init__(self, total: HeldBytes) -> None:
        self._total = total
        self._num_bytes = 0

    def add(self, num_bytes: int) -> None:
        """Hold ``num_bytes`` more. Raises ``ApiError`` if the gateway would hold too many."""
        if self._num_bytes + num_bytes > self._total.max_bytes:
            raise ApiError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body, once for each choice, has more than {self._total.max_bytes} bytes",
                code="body_too_large",
            )
        if self._total.num_bytes + num_bytes > self._total.max_bytes:
            raise overloaded("requests of too many bytes are being answered already")
        self._num_bytes += num_bytes
        self._total.num_bytes += num_bytes

    def repeat(self, num_times: int) -> None:
        """Hold ``num_times`` as much: each choice of a prompt is a call with that prompt. Raises
        ``ApiError``."""
        self.add(self._num_bytes * (num_times - 1))

    def release(self) -> None:
        """Let go of all."""
        self._total.num_bytes -= self._num_bytes
        self._num_bytes = 0


class HeldBytes:
    """ASGI middleware: ``request.state.held`` is the request's ``Held``.

    Invariant: ``num_bytes``, those of all requests, are at most ``max_bytes``.
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
