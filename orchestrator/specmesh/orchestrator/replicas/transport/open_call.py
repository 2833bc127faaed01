"""A streaming call to a peer that stays open, for one request after another."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from specmesh.orchestrator.replicas.transport.exchange import Receiver
from specmesh.orchestrator.replicas.transport.inbox import Response, call_error
from specmesh.serving.eager import begin

Request = TypeVar("Request")


class OpenCall(Generic[Request, Response]):
    """A streaming call that tasks of its own write and read. These tasks are never cancelled.

    Messages go to ``receiver``, which may be another one for each request; while there is none, the
    peer has nothing to say.

    Each gRPC operation whose awaiting task is cancelled leaks some 100 bytes
    (github.com/grpc/grpc/issues/43360). If the call is cancelled instead, its operations end by
    themselves, except for the first, the wait until the peer opens the call: a call cancelled
    before that is cancelled once the peer has opened it.
    """

    def __init__(self, call: grpc.aio.StreamStreamCall[Request, Response]) -> None:
        self.began = asyncio.get_running_loop().time()
        self.receiver: Receiver[Response] | None = None
        self._call = call
        self._opened = False
        self._cancelled = False
        self._end: BaseException | None = None
        self._unsent: BaseException | None = None
        """The error of a request that could not be sent."""
        self._reading = asyncio.create_task(self._read_all())
        self._writing: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """True if the call has ended."""
        return self._cancelled or self._end is not None or self._call.done()

    def cancel(self) -> None:
        """Cancel the call now. The receiver is told nothing more."""
        self._cancelled = True
        self.receiver = None
        if self._opened:
            self._call.cancel()

    def write(self, request: Request) -> asyncio.Task[None] | None:
        """Send a request immediately; return a task until gRPC has taken it, or None if it has. The
        receiver is told of errors, but not before this returns."""
        self._writing = begin(self._write(request))
        return self._writing

    def _ended(self, end: BaseException) -> None:
        """Record how the call has ended, the first time that this is said."""
        if self._end is None:
            self._end = end
            if self.receiver is not None:
                self.receiver.ended(end)

    def _broke(self, end: BaseException) -> None:
        """Record that a request could not be sent."""
        self._unsent = end
        asyncio.get_running_loop().call_soon(self._ended, end)

    async def _write(self, request: Request) -> None:
        if self._cancelled:
            return
        try:
            await self._call.write(request)
        except asyncio.InvalidStateError:
            pass  # the call has ended, and the reader says why
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INTERNAL:  # gRPC could not send the request
                error = call_error(grpc.StatusCode.UNAVAILABLE, "the call broke")
            self._broke(error)
        except asyncio.CancelledError:
            self._broke(_closed())
        except Exception as error:
            # A traceback would form a cycle with this call.
            self._broke(error.with_traceback(None))

    async def _read_all(self) -> None:
        call: Any = self._call
        try:
            await call.initial_metadata()
            self._opened = True
            if self._cancelled:
                call.cancel()
            while (message := await call.read()) is not grpc.aio.EOF:
                if self.receiver is not None:
                    self.receiver.arrived(message)
            end: BaseException = call_error(grpc.StatusCode.UNAVAILABLE, "the peer ended the call")
        except asyncio.CancelledError:
            end = _closed()
        except Exception as error:
            end = error.with_traceback(None)  # as above
        if self._writing is not None and not self._writing.done():
            await asyncio.wait((self._writing,))  # it knows better why, if it has failed
        self._ended(self._unsent or end)


def _closed() -> grpc.aio.AioRpcError:
    """Return the error of a call that gRPC cancelled without ``cancel``: the waiting task was not
    cancelled itself and may retry elsewhere."""
    return call_error(grpc.StatusCode.UNAVAILABLE, "the channel was closed")
