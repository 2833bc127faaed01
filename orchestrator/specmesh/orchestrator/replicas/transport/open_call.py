"""A streaming call to a peer that stays open, for one request after another."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from specmesh.orchestrator.replicas.transport.inbox import Inbox, Response, Take, call_error
from specmesh.serving.eager import begin

Request = TypeVar("Request")


class OpenCall(Generic[Request, Response]):
    """A streaming call that tasks of its own write and read. These tasks are never cancelled.

    Each gRPC operation whose awaiting task is cancelled leaks some 100 bytes
    (github.com/grpc/grpc/issues/43360). If the call is cancelled instead, its operations end by
    themselves, except for the first, the wait until the peer opens the call: a call cancelled
    before that is cancelled once the peer has opened it.
    """

    def __init__(self, call: grpc.aio.StreamStreamCall[Request, Response]) -> None:
        self.began = asyncio.get_running_loop().time()
        self._call = call
        self._opened = False
        self._cancelled = False
        self._inbox: Inbox[Response] = Inbox()
        self._reading = asyncio.create_task(self._read_all())
        self._writing: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """True if the call has ended."""
        return self._cancelled or self._call.done()

    def cancel(self) -> None:
        """Cancel the call now, so that ``each`` raises ``CancelledError``."""
        self._cancelled = True
        self._inbox.ended(asyncio.CancelledError())
        if self._opened:
            self._call.cancel()

    def write(self, request: Request) -> asyncio.Task[None] | None:
        """Send a request immediately; return a task until gRPC has taken it, or None if it has.
        Errors of the call are raised by ``each``."""
        self._writing = begin(self._write(request))
        return self._writing

    async def each(self, take: Take[Response], by: float) -> None:
        """Pass messages to ``take``, each in the step of the event loop that read it, until it
        returns None. The first must arrive before ``by``, by the event loop's clock.

        Raises the ``AioRpcError`` that ended the call, ``CancelledError`` if that was ``cancel``,
        ``AioRpcError`` with DEADLINE_EXCEEDED for a late message, or what ``take`` raises.
        """
        await self._inbox.each(take, by)

    async def _write(self, request: Request) -> None:
        if self._cancelled:
            return
        try:
            await self._call.write(request)
        except asyncio.InvalidStateError:
            pass  # the call has ended, and ``each`` raises the reason
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INTERNAL:  # gRPC could not send the request
                error = call_error(grpc.StatusCode.UNAVAILABLE, "the call broke")
            self._inbox.ended(error)
        except asyncio.CancelledError:
            self._inbox.ended(_closed())
        except Exception as error:
            # A traceback would form a cycle with this call.
            self._inbox.ended(error.with_traceback(None))

    async def _read_all(self) -> None:
        call: Any = self._call
        try:
            await call.initial_metadata()
            self._opened = True
            if self._cancelled:
                call.cancel()
            while (message := await call.read()) is not grpc.aio.EOF:
                if not self._cancelled:
                    self._inbox.arrived(message)
            end: BaseException = call_error(grpc.StatusCode.UNAVAILABLE, "the peer ended the call")
        except asyncio.CancelledError:
            end = _closed()
        except Exception as error:
            end = error.with_traceback(None)  # as above
        self._inbox.ended(end)


def _closed() -> grpc.aio.AioRpcError:
    """Return the error of a call that gRPC cancelled without ``cancel``: the waiting task was not
    cancelled itself and may retry elsewhere."""
    return call_error(grpc.StatusCode.UNAVAILABLE, "the channel was closed")
