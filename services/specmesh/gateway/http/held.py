"""A bound on the bytes of all requests in a gateway: bodies that are arriving, and what is being
answered. Without it, a few callers could fill the memory.

Nor may one caller fill it, so that all others are refused: each may hold at most SHARE times as
much as is then left. One alone holds three quarters, two three sevenths each, and so on.
"""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from specmesh.gateway.errors import ApiError, overloaded
from specmesh.gateway.http.connections import site_of

SHARE = 3
"""The most that a caller may hold, in units of what is left for others."""


class Held:
    """The bytes that one request holds until it ends.

    ``owner`` is the identity of its caller, and the site of the address while no identity is known.
    Once bytes are held it stays the same.
    """

    def __init__(self, total: HeldBytes, owner: str) -> None:
        self.owner = owner
        self._total = total
        self._num_bytes = 0

    def add(self, num_bytes: int, what: str = "the body times n", param: str | None = None) -> None:
        """Hold ``num_bytes`` more of ``what``, which ``param`` has asked for. Raises ``ApiError``:
        413 if the request alone exceeds the bound, 429 if it does so with others."""
        if self._num_bytes + num_bytes > self._total.most_of_one:
            raise ApiError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"more than {self._total.most_of_one} bytes for {what}",
                param=param,
                code="body_too_large",
            )
        self._total.add(self.owner, num_bytes)
        self._num_bytes += num_bytes

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
        self._total.remove(self.owner, self._num_bytes)
        self._num_bytes = 0


class HeldBytes:
    """ASGI middleware that sets ``request.state.held`` to the request's ``Held``.

    Invariant: all requests together hold less than ``max_bytes``.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._num_by_owner = Counter[str]()
        self._num_all = 0

    @property
    def most_of_one(self) -> int:
        """The most that a request may hold, and its owner, while there is no other."""
        return self._max_bytes * SHARE // (SHARE + 1)

    def add(self, owner: str, num_bytes: int) -> None:
        """Count ``num_bytes`` that ``owner`` is to hold. Raises ``ApiError`` 429 if that were more
        than its share."""
        left = self._max_bytes - self._num_all - num_bytes
        if self._num_by_owner[owner] + num_bytes > SHARE * left:
            raise overloaded("the requests being answered already hold too many bytes")
        self._num_by_owner[owner] += num_bytes
        self._num_all += num_bytes

    def remove(self, owner: str, num_bytes: int) -> None:
        """Stop counting ``num_bytes`` that ``owner`` held."""
        self._num_all -= num_bytes
        self._num_by_owner[owner] -= num_bytes
        if not self._num_by_owner[owner]:
            del self._num_by_owner[owner]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        host, _ = scope.get("client") or ("", 0)
        held = scope.setdefault("state", {})["held"] = Held(self, site_of(host))
        try:
            await self._app(scope, receive, send)
        finally:
            held.release()
