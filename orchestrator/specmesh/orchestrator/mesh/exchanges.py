"""Open calls to one peer, so that asking it something costs a message and not a call.

Setting up a call and ending it takes most of a hop: two thirds of it between processes that
have slept for 30 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

Request = TypeVar("Request")
Response = TypeVar("Response")

MAX_IDLE = 16
"""How many open calls wait for the next request, at most."""


class Exchange(Generic[Request, Response]):
    """One request, and what comes back until ``deadline`` by the event loop's clock."""

    def __init__(self, call: grpc.aio.StreamStreamCall[Request, Response], deadline: float) -> None:
        self._call = call
        self._deadline = deadline

    def cancel(self) -> None:
        """Stop the work at the peer now; ``read`` then raises ``CancelledError``."""
        self._call.cancel()

    async def send(self, request: Request) -> None:
        """Ask. What is wrong with the call is told by ``read``."""
        try:
            async with self._in_time():
                await self._call.write(request)
        except TimeoutError:
            raise _late() from None
        except asyncio.InvalidStateError:
            pass  # the call has ended: it was idle, and the peer went
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INTERNAL:  # gRPC's word for: not to be sent
                raise call_error(grpc.StatusCode.UNAVAILABLE, "the call broke") from error
            raise

    async def read(self, by: float | None = None) -> Response:
        """The next message. Raises ``AioRpcError``, also when there is none in time, or ``by``
        then."""
        try:
            async with self._in_time(by):
                message: Any = await self._call.read()
        except TimeoutError:
            raise _late() from None
        if message is grpc.aio.EOF:
            raise call_error(grpc.StatusCode.UNAVAILABLE, "the peer ended the call")
        response: Response = message
        return response

    def _in_time(self, by: float | None = None) -> asyncio.Timeout:
        return asyncio.timeout_at(self._deadline if by is None else min(by, self._deadline))


class Exchanges(Generic[Request, Response]):
    """The open calls of one streaming method of one peer, each used by one at a time."""

    def __init__(self, method: grpc.aio.StreamStreamMultiCallable[Request, Response]) -> None:
        self._open = method
        self._idle: list[grpc.aio.StreamStreamCall[Request, Response]] = []

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
            exchange = Exchange(call, deadline)
            await exchange.send(request)
            yield exchange
        except grpc.aio.AioRpcError:
            call.cancel()
            raise
        except BaseException:
            call.cancel()
            if not self._idle:  # cancelling must not make the next request slower
                self._idle.append(self._open())
            raise
        if len(self._idle) < MAX_IDLE:
            self._idle.append(call)
        else:
            call.cancel()

    def _take(self) -> grpc.aio.StreamStreamCall[Request, Response]:
        while self._idle:
            call = self._idle.pop()
            if not call.done():
                return call
        return self._open()


def _late() -> grpc.aio.AioRpcError:
    return call_error(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time")


def call_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """What a call that ended so would raise."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details)
