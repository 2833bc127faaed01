"""Open calls to one peer, so that asking it something costs a message and not a call.

Setting up a call and ending it takes most of a hop: two thirds of it between processes that
have slept for 30 ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic

import grpc
import grpc.aio

from specmesh.orchestrator.mesh.open_call import (
    OpenCall,
    Request,
    Response,
    Take,
)

MAX_IDLE = 16
"""How many open calls wait for the next request, at most."""
NUM_SPARE = 2
"""So many wait once a request was cancelled: the next one needs a call at once, and the one
after it another that is open by then."""


class Exchange(Generic[Request, Response]):
    """One request, and what comes back until ``deadline`` by the event loop's clock."""

    def __init__(self, call: OpenCall[Request, Response], deadline: float) -> None:
        self._call = call
        self._deadline = deadline

    def cancel(self) -> None:
        """Stop the work at the peer now; ``each`` then raises ``CancelledError``."""
        self._call.cancel()

    async def read(self) -> Response:
        """The only message. Raises as ``each``."""
        messages: list[Response] = []
        await self._call.each(messages.append, self._deadline)
        return messages[0]

    async def each(self, take: Take[Response], by: float | None = None) -> None:
        """Give the messages to ``take`` as they come; the first must come ``by`` then, if that
        is sooner than the deadline.

        Raises ``AioRpcError``, also for a message that is late, and what ``take`` raises.
        """

        def taken(message: Response) -> float | None:
            next_by = take(message)
            return None if next_by is None else min(next_by, self._deadline)

        await self._call.each(taken, self._deadline if by is None else min(by, self._deadline))


class StreamPool(Generic[Request, Response]):
    """The open calls of one streaming method of one peer, each used by one at a time."""

    def __init__(self, method: grpc.aio.StreamStreamMultiCallable[Request, Response]) -> None:
        self._method = method
        self._idle: deque[OpenCall[Request, Response]] = deque()

    @asynccontextmanager
    async def ask(
        self, request: Request, deadline: float
    ) -> AsyncIterator[Exchange[Request, Response]]:
        """Send ``request``; the block must read to the end of what comes back.

        A block that is left by an exception cancels the call, and with it the work at the
        peer.
        """
        call = self._take()
        try:
            call.write(request)
            yield Exchange(call, deadline)
        except grpc.aio.AioRpcError:
            call.cancel()
            raise
        except BaseException:
            call.cancel()
            while len(self._idle) < NUM_SPARE:
                self._idle.append(self._open())
            raise
        if len(self._idle) < MAX_IDLE:
            self._idle.append(call)
        else:
            call.cancel()

    def _take(self) -> OpenCall[Request, Response]:
        while self._idle:
            call = self._idle.popleft()
            if not call.over:
                return call
        return self._open()

    def _open(self) -> OpenCall[Request, Response]:
        return OpenCall(self._method())
