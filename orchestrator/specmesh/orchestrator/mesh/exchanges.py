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

from specmesh.orchestrator.mailbox import Mailbox

Request = TypeVar("Request")
Response = TypeVar("Response")

MAX_IDLE = 16
"""How many open calls wait for the next request, at most."""


class OpenCall(Generic[Request, Response]):
    """A call whose messages are read as they come, by a task of its own that nobody cancels.

    Each operation of gRPC's that is cancelled while it is awaited leaves some 100 bytes behind
    for ever (github.com/grpc/grpc/issues/43360), but those of a call that is cancelled end by
    themselves. All but the first, which waits for the peer to open the call: a call that is
    cancelled before that is cancelled then.
    """

    def __init__(self, call: grpc.aio.StreamStreamCall[Request, Response]) -> None:
        self._call = call
        self._opened = False
        self._cancelled = False
        self._arrived: Mailbox[Response] = Mailbox()
        self._end: BaseException | None = None
        """What ended the call, once all that arrived is read."""
        self._reading = asyncio.create_task(self._read_all())

    @property
    def over(self) -> bool:
        """Whether the call has ended."""
        return self._cancelled or self._call.done()

    def cancel(self) -> None:
        """End it now; ``read`` then raises ``CancelledError``."""
        self._cancelled = True
        self._ended(asyncio.CancelledError())
        if self._opened:
            self._call.cancel()

    async def write(self, request: Request) -> None:
        """As gRPC's."""
        await self._call.write(request)

    async def read(self, by: float) -> Response:
        """The next message, if it comes ``by`` then, by the event loop's clock.

        Raises what ended the call, ``AioRpcError`` or ``CancelledError``, or that it is late.
        """
        if self._end is None:
            await self._arrived.wait(by)
        if self._arrived:
            return self._arrived.take()
        raise self._end or _late()

    def _ended(self, end: BaseException) -> None:
        if self._end is None:
            self._end = end
            self._arrived.wake()

    async def _read_all(self) -> None:
        call: Any = self._call
        try:
            await call.initial_metadata()
            self._opened = True
            if self._cancelled:
                call.cancel()
            while (message := await call.read()) is not grpc.aio.EOF:
                if not self._cancelled:
                    self._arrived.put(message)
            end: BaseException = call_error(grpc.StatusCode.UNAVAILABLE, "the peer ended the call")
        except (Exception, asyncio.CancelledError) as error:
            end = error.with_traceback(None)  # which would keep this call in a cycle
        self._ended(end)


class Exchange(Generic[Request, Response]):
    """One request, and what comes back until ``deadline`` by the event loop's clock."""

    def __init__(self, call: OpenCall[Request, Response], deadline: float) -> None:
        self._call = call
        self._deadline = deadline

    def cancel(self) -> None:
        """Stop the work at the peer now; ``read`` then raises ``CancelledError``."""
        self._call.cancel()

    async def send(self, request: Request) -> None:
        """Ask. What is wrong with the call is told by ``read``."""
        try:
            async with asyncio.timeout_at(self._deadline):
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
        return await self._call.read(self._deadline if by is None else min(by, self._deadline))


class Exchanges(Generic[Request, Response]):
    """The open calls of one streaming method of one peer, each used by one at a time."""

    def __init__(self, method: grpc.aio.StreamStreamMultiCallable[Request, Response]) -> None:
        self._method = method
        self._idle: list[OpenCall[Request, Response]] = []

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

    def _take(self) -> OpenCall[Request, Response]:
        while self._idle:
            call = self._idle.pop()
            if not call.over:
                return call
        return self._open()

    def _open(self) -> OpenCall[Request, Response]:
        return OpenCall(self._method())


def _late() -> grpc.aio.AioRpcError:
    """What a call that isn't answered in time raises."""
    return call_error(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time")


def call_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """What a call that ended so would raise."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details)
