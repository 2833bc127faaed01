"""Calls that carry many requests at once (VerifyMany, DraftMany, GenerateMany), from the side that
answers.

Each request is a task of its own, within the layers that a call of its own would have. Whatever is
ready when gRPC can take a message goes out in one: with many requests in one forward pass, that is
one message for all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, Generic, TypeVar

import grpc
import grpc.aio

from specmesh.decoding.errors import InvalidField
from specmesh.serving.codec.failures import write_failure
from specmesh.serving.errors import (
    FailedPreconditionStatus,
    ResourceExhaustedStatus,
    ServiceError,
    UnavailableStatus,
    to_status,
)
from specmesh.serving.rpc.intake import MAX_REQUEST_BYTES, HeldMessage
from specmesh.serving.rpc.interceptors import exchange
from specmesh.serving.rpc.observed_request import Context
from specmesh.serving.rpc.one_of_many import OneOfMany

Response = TypeVar("Response")

Send = Callable[[Response], "OutgoingBatch"]
"""Sends a response soon, in the batch that it returns."""
Serve = Callable[[Any, OneOfMany, Send[Response]], Awaitable[None]]
"""Answers one request: passes its responses on."""
OneOf = Callable[[Context, Any], OneOfMany]
"""Returns the context of one request of a call. Raises ``InvalidField``."""

MAX_MESSAGE_BYTES: Final = 2**20
"""Once a message has this size, further responses wait for the next one."""
MAX_RUNNING: Final = 1024
"""The most requests of one call that are answered at a time."""
MAX_IN_MESSAGE: Final = 2 * MAX_RUNNING
"""The most requests of one message."""
MAX_WAITING: Final = 4
"""While more messages than these wait for a caller who does not read, its requests wait, too: each
refusal would take more memory than the request that it refuses."""
_RETRY_SECONDS: Final = 0.1


class OutgoingBatch:
    """One ``message`` with responses, and the requests that wait until gRPC has taken it.

    Each waits for a future of its own: one for all would have to be shielded from those that are
    cancelled, which costs every request a turn of the event loop.
    """

    def __init__(self, message: Any) -> None:
        self.message = message
        self.num_bytes = 0
        self._is_taken = False
        self._waiting: list[asyncio.Future[None]] = []

    async def sent(self) -> None:
        """Return once gRPC has taken the message."""
        if not self._is_taken:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    def taken(self) -> None:
        """Record that gRPC has taken the message."""
        self._is_taken = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)


class _ManyRequests(Generic[Response]):
    """The requests of one call that are being answered, and their answers that are to be sent."""

    def __init__(
        self, context: Context, serve: Serve[Response], new_message: type[Any], one_of: OneOf
    ) -> None:
        self._context = context
        self._serve = serve
        self._new_message = new_message
        self._one_of = one_of
        self._running: dict[int, asyncio.Task[None]] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        """Tasks of requests that were cancelled by number."""
        self._batches: deque[OutgoingBatch] = deque()
        self._taken = asyncio.Event()
        self._changed = asyncio.Event()
        self._error: BaseException | None = None
        """An error that is not one request's alone, which ends the call."""
        self._reading: asyncio.Task[None]

    async def answer(self, requests: AsyncIterator[HeldMessage]) -> AsyncGenerator[Any, None]:
        """Yield messages until the caller has sent all requests and has all answers."""
        self._reading = asyncio.create_task(self._read(requests))
        try:
            while True:
                if self._batches:
                    batch = self._batches.popleft()
                    yield batch.message
                    batch.taken()
                    self._taken.set()
                elif self._error is not None:
                    raise self._error
                elif self._reading.done() and not self._running:
                    return
                else:
                    await self._changed.wait()
                    self._changed.clear()
        finally:
            tasks = [self._reading, *self._running.values(), *self._stopping]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, requests: AsyncIterator[HeldMessage]) -> None:
        try:
            async for held in requests:
                try:
                    self._take(held)
                finally:
                    held.release()
                while len(self._batches) > MAX_WAITING:
                    self._taken.clear()
                    await self._taken.wait()
        except Exception as error:
            self._error = error
        finally:
            self._changed.set()

    def _take(self, held: HeldMessage) -> None:
        for number in held.message.cancelled:
            if (task := self._running.pop(number, None)) is not None:
                self._stopping.add(task)
                task.cancel()
        if len(held.message.requests) > MAX_IN_MESSAGE:
            raise InvalidField("requests", f"has more than {MAX_IN_MESSAGE} entries")
        for each in held.message.requests:
            number = each.number
            if number in self._running:
                reason = f"{number} is that of a request under way"
                raise InvalidField("requests.number", reason)
            if number in held.refused:
                self._refuse(number, held.refused[number])
            elif len(self._running) >= MAX_RUNNING:
                self._refuse(number, _too_many())
            else:
                self._begin(number, each.request, held.share())

    def _begin(self, number: int, request: Any, share: HeldMessage) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            share.release()
            self._stopping.discard(task)
            was_running = self._running.get(number) is task
            if was_running:
                del self._running[number]
            if not task.cancelled():
                self._error = task.exception() or self._error
            elif was_running:  # by nobody who knew of it: its caller still waits
                self._refuse(number, UnavailableStatus("CANCELLED", "the request was cancelled"))
            if self._error is not None or self._reading.done():
                self._changed.set()  # ``answer`` may end

        task = self._running[number] = asyncio.create_task(self._respond(number, request))
        task.add_done_callback(ended)

    async def _respond(self, number: int, request: Any) -> None:
        try:
            context = self._one_of(self._context, request)
        except InvalidField as error:
            self._refuse(number, error)
            return
        latest: OutgoingBatch | None = None

        def send(response: Response) -> OutgoingBatch:
            nonlocal latest
            latest = self._send(number, response)
            return latest

        try:
            async with exchange(context.trace_context, context):
                await self._serve(request, context, send)
                if latest is not None:
                    # The layers see the request until its last message is sent: a process that
                    # drains waits for it.
                    await latest.sent()
        except grpc.aio.AbortError:
            self._send_end(number, context.failure)
        else:
            if context.tells_end:
                self._send_end(number)

    def _send(self, number: int, response: Any) -> OutgoingBatch:
        num_bytes = response.ByteSize()
        if num_bytes > MAX_REQUEST_BYTES:
            raise FailedPreconditionStatus(
                "ANSWER_TOO_LARGE",
                f"the answer has {num_bytes} bytes; the limit is {MAX_REQUEST_BYTES}",
            )
        batch = self._batch_with_room(num_bytes)
        batch.message.responses.add(number=number).response.CopyFrom(response)
        return batch

    def _refuse(self, number: int, error: ServiceError | InvalidField) -> None:
        self._send_end(number, to_status(error))

    def _send_end(self, number: int, failure: grpc.Status | None = None) -> None:
        batch = self._batch_with_room(0)
        response = batch.message.responses.add(number=number)
        if failure is not None:
            write_failure(failure, response.failure)
        batch.num_bytes += response.ByteSize()

    def _batch_with_room(self, num_bytes: int) -> OutgoingBatch:
        """Return the batch that goes out with a response of ``num_bytes``."""
        batches = self._batches
        if not batches or batches[-1].num_bytes + num_bytes > MAX_MESSAGE_BYTES:
            batches.append(OutgoingBatch(self._new_message()))
        batches[-1].num_bytes += num_bytes
        self._changed.set()
        return batches[-1]


def _of_replica(context: Context, request: Any) -> OneOfMany:
    """Return the context of a request to a replica, which says nothing of its caller."""
    return OneOfMany(context, request.trace_context)


async def answer_many(
    requests: AsyncIterator[HeldMessage],
    context: Context,
    serve: Serve[Response],
    new_message: type[Any],
    one_of: OneOf = _of_replica,
) -> AsyncGenerator[Any, None]:
    """Answer the ``requests`` of a call concurrently, each as ``serve`` does; yield messages of the
    type ``new_message``, whose field ``responses`` has all that is ready. A request that fails is
    answered with its failure; a broken call, or one that is not allowed, ends all of them.
    ``one_of`` returns the context of each, by default one with the call's metadata and deadline."""
    many = _ManyRequests(context, serve, new_message, one_of)
    async with aclosing(many.answer(requests)) as answers:
        async for answer in answers:
            yield answer


def _too_many() -> ServiceError:
    return ResourceExhaustedStatus(
        "QUEUE_FULL",
        f"{MAX_RUNNING} requests of this call are being answered",
        retry_after_s=_RETRY_SECONDS,
    )
