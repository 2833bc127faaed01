"""The admission of callers and the receipt of their requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TypeVar

from starlette.requests import Request as HttpRequest

from specmesh.gateway.errors import ApiError, shutting_down
from specmesh.gateway.http.body import parse_object, read_body
from specmesh.gateway.http.hang_up import unless_gone
from specmesh.gateway.identity import Caller, Door
from specmesh.gateway.peers import PeerCheck
from specmesh.gateway.requests.weight import num_bytes
from specmesh.gateway.settings import GatewaySettings
from specmesh.serving.identity.certificates import watched_certificate

T = TypeVar("T")

INLINE_BYTES = 2**14
"""Larger bodies are parsed in a thread, so that streams don't stall meanwhile."""
BODY_SECONDS = 30.0
"""The time limit for a body to arrive."""


class Reception:
    """Admits callers by ``door`` and receives their requests.

    Raises ``UnusableFile`` for unusable certificate files.
    """

    def __init__(self, settings: GatewaySettings, door: Door) -> None:
        self._door = door
        self._max_request_bytes = settings.max_request_bytes
        asked_for = settings.tls if settings.requires_certificates else None
        self._peers = PeerCheck(None if asked_for is None else watched_certificate(asked_for))
        # One thread: only one body at a time takes more memory than its bytes.
        self._reading = ThreadPoolExecutor(1, "reading")

    async def admit(self, request: HttpRequest) -> Caller:
        """Return the caller of ``request``. Raises ``ApiError``: 401 or 403 for a caller who may
        not call, 400 for a query parameter."""
        self._peers.check(request)
        caller = await self._door.admit(request)
        request.state.record.identity = caller.identity
        if caller.identity:
            request.state.held.owner = caller.identity
        for name in request.query_params:
            message = f"unknown query parameter {name[:64]!r}"
            raise ApiError.invalid(name[:64], message, code="unknown_parameter")
        return caller

    async def receive(
        self,
        request: HttpRequest,
        read: Callable[[Mapping[str, object]], T],
        forgotten: Collection[str] = (),
    ) -> tuple[Caller, T]:
        """Admit the caller, then receive the body and ``read`` it. The request then holds what it
        asks for, but for the parameters that ``read`` has ``forgotten``, and its body no longer.

        Raises what ``admit``, ``read_body``, ``parse_object`` and ``read`` raise.
        """
        caller = await self.admit(request)
        body = await self._body(request)
        if len(body) <= INLINE_BYTES:
            asked, weight = _read(body, read, forgotten)
        else:
            loop = asyncio.get_running_loop()
            reading = loop.run_in_executor(self._reading, _read, body, read, forgotten)
            asked, weight = await unless_gone(request, _result(reading))
        request.state.held.settle(weight)
        return caller, asked

    async def _body(self, request: HttpRequest) -> bytes:
        """Return the body. Raises what ``read_body`` raises, and ``ApiError`` 408 if it is late, or
        503 if the gateway ends before it has arrived."""
        broken_off: asyncio.Future[None] = request.state.broken_off
        try:
            async with asyncio.timeout(BODY_SECONDS) as limit:

                def end(_: object) -> None:
                    limit.reschedule(0)

                broken_off.add_done_callback(end)
                try:
                    return await read_body(request, self._max_request_bytes, request.state.held)
                finally:
                    broken_off.remove_done_callback(end)
        except TimeoutError:
            if broken_off.done():
                raise shutting_down() from None
            message = f"the body did not arrive within {BODY_SECONDS:.0f} s"
            raise ApiError(HTTPStatus.REQUEST_TIMEOUT, message, code="body_timeout") from None


def _read(
    body: bytes, read: Callable[[Mapping[str, object]], T], forgotten: Collection[str]
) -> tuple[T, int]:
    """Return what ``body`` asks for, and for how many bytes it counts without the parameters that
    ``read`` has ``forgotten``."""
    given = parse_object(body)
    asked = read(given)
    return asked, num_bytes({name: given[name] for name in given if name not in forgotten})


async def _result(work: Awaitable[T]) -> T:
    return await work
