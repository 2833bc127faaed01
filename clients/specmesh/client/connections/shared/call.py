"""An open call of GenerateMany, and the answers on it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import grpc

from specmesh.client.connections.shared.answer import NeedsOwnCall, SharedAnswer, call_error
from specmesh.v1 import generation_pb2 as pb

Call: TypeAlias = "grpc.aio.StreamStreamCall[pb.GenerateManyRequest, pb.GenerateManyResponse]"

MAX_ANSWERS: Final = 512
"""The most answers of one call. An orchestrator answers 1,024 at most."""
MAX_AGE_S: Final = 60.0
"""The age at which a call takes no more answers: the orchestrator may have asked its connection to
end (``--max-connection-age-seconds``), and others may have joined behind the same name."""
IDLE_S: Final = 5.0
"""The time after which a call without answers is ended."""
MAX_MESSAGE_BYTES: Final = 2**20
"""A request that would make a message larger waits for the next one."""
_SAYS_NOTHING: Final = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL)
"""Statuses of a call that say nothing of its answers: the orchestrator does not know the method, or
gRPC could not send a message, which hides the status by which the call had just ended."""
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_DETAILS_KEY: Final = "grpc-status-details-bin"

Ended = Callable[["SharedCall", grpc.StatusCode], None]
"""Told that a call has ended, and how."""


class SharedCall:
    """One call and its answers; ``ended`` is told when it is over, and ``is_away`` when an answer
    was UNAVAILABLE. What is asked for in one step of the event loop travels in one message.

    Tasks of its own read and write it. They are not cancelled while they wait for gRPC, which would
    leak what they wait for (github.com/grpc/grpc/issues/43360).
    """

    def __init__(self, call: Call, ended: Ended, is_away: Callable[[], None]) -> None:
        self._call = call
        self._ended = ended
        self._is_away = is_away
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._answers: dict[int, SharedAnswer] = {}
        self._num_begun = 0
        self._requests: deque[pb.NumberedGenerateRequest] = deque()
        self._cancelled: list[int] = []
        self._wanted = asyncio.Event()
        self._is_retired = self._has_begun = self.is_over = False
        self._idle: asyncio.TimerHandle | None = None
        self._reading = asyncio.create_task(self._read_all())
        self._writing = asyncio.create_task(self._write_all())

    @property
    def is_usable(self) -> bool:
        """True if it takes a further answer."""
        is_old = self._loop.time() > self._began + MAX_AGE_S
        return not (self._is_retired or self.is_over or is_old) and len(self._answers) < MAX_ANSWERS

    def begin(self, request: pb.GenerateEachRequest, timeout_s: float) -> SharedAnswer:
        """Ask for an answer; its deadline is in ``timeout_s``."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._num_begun += 1
        number = self._num_begun
        answer = self._answers[number] = SharedAnswer(self, number, timeout_s)
        self._requests.append(pb.NumberedGenerateRequest(number=number, request=request))
        self._wanted.set()
        return answer

    def cancel(self, number: int) -> None:
        """Take an answer off the call; see ``Carrier``."""
        if self._forget(number) is None or self.is_over:
            return
        for each in self._requests:
            if each.number == number:  # the orchestrator does not know of it yet
                self._requests.remove(each)
                return
        self._cancelled.append(number)
        self._wanted.set()

    def retire(self) -> None:
        """Take no more answers, and end the call once those on it have ended."""
        self._is_retired = True
        self._wanted.set()

    async def aclose(self) -> None:
        """Cancel the call, and return once it has ended."""
        self._is_retired = True
        self._call.cancel()
        self._wanted.set()
        await asyncio.gather(self._reading, self._writing)

    def _forget(self, number: int) -> SharedAnswer | None:
        answer = self._answers.pop(number, None)
        if answer is not None and not self._answers:
            if self._is_retired:
                self._wanted.set()
            else:
                self._idle = self._loop.call_later(IDLE_S, self.retire)
        return answer

    async def _write_all(self) -> None:
        try:
            await self._call.wait_for_connection()
            self._has_begun = True
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                while (self._requests or self._cancelled) and not self.is_over:
                    await self._call.write(self._next_message())
                if self.is_over:
                    return
                if self._is_retired and not self._answers:
                    await self._call.done_writing()
                    return
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            pass  # the call has ended, and its reader says why

    def _next_message(self) -> pb.GenerateManyRequest:
        message = pb.GenerateManyRequest(cancelled=self._cancelled)
        self._cancelled.clear()
        left = MAX_MESSAGE_BYTES
        while self._requests:
            left -= self._requests[0].ByteSize()
            if left < 0 and message.requests:
                break
            message.requests.append(self._requests.popleft())
        return message

    async def _read_all(self) -> None:
        end = call_error(grpc.StatusCode.UNAVAILABLE, "the orchestrator ended the call")
        try:
            while isinstance(message := await self._call.read(), pb.GenerateManyResponse):
                self._arrived(message)
        except grpc.aio.AioRpcError as error:
            end = error
        except asyncio.CancelledError:  # the call was cancelled, not this task
            end = call_error(grpc.StatusCode.UNAVAILABLE, "the connection was closed")
        self.is_over = True
        self._wanted.set()
        if self._idle is not None:
            self._idle.cancel()
        if not self._has_begun:
            # Nothing would wake it: it waits for an event of asyncio's that a call which is
            # cancelled while it connects never sets. So nothing of gRPC's leaks.
            self._writing.cancel()
        self._ended(self, end.code())
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer.ended(_end_for_one(end))

    def _arrived(self, message: pb.GenerateManyResponse) -> None:
        for each in message.responses:
            answer = self._answers.get(each.number)
            if answer is None:
                continue  # cancelled meanwhile
            if each.HasField("response"):
                answer.arrived(each.response)
                continue
            self._forget(each.number)
            error = _error_of(each.failure) if each.HasField("failure") else None
            if error is not None and error.code() is grpc.StatusCode.UNAVAILABLE:
                self._is_away()
            answer.ended(error)


def _error_of(failure: pb.RequestFailure) -> grpc.aio.AioRpcError:
    """Return the error that a call of its own would raise if it ended so."""
    code = _CODES.get(failure.code, grpc.StatusCode.UNKNOWN)
    details = failure.status_details
    trailers = grpc.aio.Metadata(*([(_DETAILS_KEY, details)] if details else []))
    return call_error(code, failure.message, trailers)


def _end_for_one(end: grpc.aio.AioRpcError) -> BaseException:
    """Return what one of the answers of a call that has ended is told. Raising the same error for
    each would gather the frames of all of their readers."""
    if end.code() in _SAYS_NOTHING:
        return NeedsOwnCall()
    return call_error(end.code(), end.details() or "", end.trailing_metadata())
