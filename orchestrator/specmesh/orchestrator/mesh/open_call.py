"""An open call to a peer, and who is told what comes of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

import grpc
import grpc.aio

from specmesh.orchestrator.mesh.eager import begin

Request = TypeVar("Request")
Response = TypeVar("Response")

Take: TypeAlias = Callable[[Response], float | None]
"""Takes a message; returns by when the next one must come, by the event loop's clock, or None
if it was the last."""


class OpenCall(Generic[Request, Response]):
    """A call that is written to and read by tasks of its own, which nobody cancels.

    Each operation of gRPC's that is cancelled while it is awaited leaves some 100 bytes behind
    for ever (github.com/grpc/grpc/issues/43360), but those of a call that is cancelled end by
    themselves. All but the first, which waits for the peer to open the call: a call that is
    cancelled before that is cancelled then.
    """

    def __init__(self, call: grpc.aio.StreamStreamCall[Request, Response]) -> None:
        self._call = call
        self._opened = False
        self._cancelled = False
        self._early: deque[Response] = deque()
        """What has come before anybody asked for it."""
        self._taking: _Taking[Response] | None = None
        self._end: BaseException | None = None
        """What ended the call."""
        self._reading = asyncio.create_task(self._read_all())
        self._writing: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Whether the call has ended."""
        return self._cancelled or self._call.done()

    def cancel(self) -> None:
        """End it now; ``each`` then raises ``CancelledError``."""
        self._cancelled = True
        self._ended(asyncio.CancelledError())
        if self._opened:
            self._call.cancel()

    def write(self, request: Request) -> None:
        """Send a request, at once. What is wrong with the call is told by ``each``."""
        self._writing = begin(self._write(request))

    async def each(self, take: Take[Response], by: float) -> None:
        """Give the messages to ``take``, each in the very step in which it is read, until it
        returns None. The first must come ``by`` then, by the event loop's clock.

        Raises what ended the call, ``AioRpcError`` or ``CancelledError``, that a message is
        late, or what ``take`` raises.
        """
        taking = self._taking = _Taking(take, by)
        try:
            while self._early and not taking.over:
                taking.hand_over(self._early.popleft())
            if self._end is not None:
                taking.end(self._end)
            await taking.wait()
        finally:
            self._taking = None

    def _ended(self, end: BaseException) -> None:
        if self._end is None:
            self._end = end
            if self._taking is not None:
                self._taking.end(end)

    async def _write(self, request: Request) -> None:
        if self._cancelled:
            return
        try:
            await self._call.write(request)
        except asyncio.InvalidStateError:
            pass  # the call has ended, and who reads it hears why
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INTERNAL:  # gRPC's word for: not to be sent
                error = call_error(grpc.StatusCode.UNAVAILABLE, "the call broke")
            self._ended(error)
        except (Exception, asyncio.CancelledError) as error:
            self._ended(error.with_traceback(None))  # which would keep this call in a cycle

    async def _read_all(self) -> None:
        call: Any = self._call
        try:
            await call.initial_metadata()
            self._opened = True
            if self._cancelled:
                call.cancel()
            while (message := await call.read()) is not grpc.aio.EOF:
                self._arrived(message)
            end: BaseException = call_error(grpc.StatusCode.UNAVAILABLE, "the peer ended the call")
        except (Exception, asyncio.CancelledError) as error:
            end = error.with_traceback(None)  # as above
        self._ended(end)

    def _arrived(self, message: Response) -> None:
        if self._cancelled:
            return
        if self._taking is None or self._taking.over:
            self._early.append(message)
        else:
            self._taking.hand_over(message)


class _Taking(Generic[Response]):
    """Somebody takes messages, until he has the last or an error ends it."""

    def __init__(self, take: Take[Response], by: float) -> None:
        self._take = take
        self._by = by
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._error: BaseException | None = None
        self._rings_at = by
        self._timer = self._loop.call_at(by, self._ring)

    @property
    def over(self) -> bool:
        """Whether nothing more is taken."""
        return self._done.done()

    def hand_over(self, message: Response) -> None:
        """A message has come."""
        try:
            by = self._take(message)
        except Exception as error:
            self.end(error)
            return
        if by is None:
            self.end(None)
        else:
            self._expect(by)

    def end(self, error: BaseException | None) -> None:
        """Nothing more is taken; ``wait`` raises ``error`` if there is one."""
        if not self._done.done():
            self._error = error
            self._done.set_result(None)

    async def wait(self) -> None:
        """Return after the last message."""
        try:
            await self._done
        finally:
            self._timer.cancel()
        if self._error is not None:
            raise self._error

    def _expect(self, by: float) -> None:
        # A timer that rings too early is set again then: most messages need none of their own.
        self._by = by
        if by < self._rings_at:
            self._set_timer()

    def _ring(self) -> None:
        if self._loop.time() >= self._by:
            self.end(late())
        else:
            self._set_timer()

    def _set_timer(self) -> None:
        self._timer.cancel()
        self._rings_at = self._by
        self._timer = self._loop.call_at(self._by, self._ring)


def late() -> grpc.aio.AioRpcError:
    """What a call that isn't answered in time raises."""
    return call_error(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time")


def call_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """What a call that ended so would raise."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details)
