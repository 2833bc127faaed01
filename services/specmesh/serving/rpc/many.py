"""Calls that carry many requests at once (VerifyMany, DraftMany), from the side that answers.

Each request is a task of its own, within the layers that a call of its own would have. Whatever is
ready when gRPC can take a message goes out in one: with many requests in one forward pass, that is
one message for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from specmesh.decoding.errors import InvalidField
from specmesh.mesh.v1alpha1.failure_pb2 import RequestFailure
from specmesh.serving.codec.failures import code_of, write_failure
from specmesh.serving.rpc.interceptors import Context, HeldMessage, exchange

Response = TypeVar("Response")

Serve = Callable[[Any], AsyncGenerator[Response, None]]
"""Answers one request: yields its responses."""


@dataclass(frozen=True, slots=True)
class ManyMessages:
    """The types of the messages that one end of such a call sends: a ``whole`` message has a part
    of the type ``one`` for each new request, or each response."""

    whole: Callable[..., Any]
    one: Callable[..., Any]


class OneOfMany:
    """The part of a call's context that layers use, for one request of a call that carries many:
    its status is its own, and does not end the call."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.failure: RequestFailure | None = None

    def invocation_metadata(self) -> Any:
        """Return the metadata of the call."""
        return self._context.invocation_metadata()

    def code(self) -> grpc.StatusCode | None:
        """Return the status with which the request has failed; None if it has not."""
        return None if self.failure is None else code_of(self.failure)

    def details(self) -> str:
        """Return the message of that status."""
        return "" if self.failure is None else self.failure.message

    async def abort_with_status(self, status: grpc.Status) -> None:
        """Record the status of the request. Raises ``AbortError``, as the call's context does."""
        self.failure = write_failure(status)
        raise grpc.aio.AbortError


class _ManyRequests(Generic[Response]):
    """The requests of one call that are being answered, and their answers that are to be sent."""

    def __init__(self, context: Context, serve: Serve[Response], messages: ManyMessages) -> None:
        self._context = context
        self._serve = serve
        self._messages = messages
        self._running: dict[int, asyncio.Task[None]] = {}
        self._ready: list[Any] = []
        self._sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once gRPC has taken all that is ready now."""
        self._changed = asyncio.Event()
        self._error: BaseException | None = None
        """An error that is not one request's alone, which ends the call."""

    async def answer(self, requests: AsyncIterator[HeldMessage]) -> AsyncGenerator[Any, None]:
        """Yield messages until the caller has sent all requests and has all answers."""
        reading = asyncio.create_task(self._read(requests))
        try:
            while not (reading.done() and not self._running and not self._ready):
                await self._changed.wait()
                self._changed.clear()
                if self._error is not None:
                    raise self._error
                if self._ready:
                    ready, self._ready = self._ready, []
                    sent, self._sent = self._sent, asyncio.get_running_loop().create_future()
                    yield self._messages.whole(responses=ready)
                    sent.set_result(None)
        finally:
            tasks = [reading, *self._running.values()]
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
        except Exception as error:
            self._error = error
        finally:
            self._changed.set()

    def _take(self, held: HeldMessage) -> None:
        for number in held.message.cancelled:
            if number in self._running:
                self._running[number].cancel()
        for each in held.message.requests:
            self._begin(each.number, each.request, held)

    def _begin(self, number: int, request: Any, held: HeldMessage) -> None:
        if number in self._running:
            raise InvalidField("requests.number", f"{number} is that of a request under way")
        share = held.share()

        def ended(task: asyncio.Task[None]) -> None:
            share.release()
            del self._running[number]
            if not task.cancelled() and task.exception() is not None:
                self._error = task.exception()
            self._changed.set()

        task = self._running[number] = asyncio.create_task(self._respond(number, request))
        task.add_done_callback(ended)

    async def _respond(self, number: int, request: Any) -> None:
        context = OneOfMany(self._context)
        try:
            async with (
                exchange(request.trace_context, context),
                aclosing(self._serve(request.request)) as responses,
            ):
                sent: asyncio.Future[None] | None = None
                async for response in responses:
                    sent = self._send(self._messages.one(number=number, response=response))
                if sent is not None:
                    # The layers see the request until its last message is sent: a process that
                    # drains waits for it. Others wait for the same message.
                    await asyncio.shield(sent)
        except grpc.aio.AbortError:
            self._send(self._messages.one(number=number, failure=context.failure))

    def _send(self, response: Any) -> asyncio.Future[None]:
        self._ready.append(response)
        self._changed.set()
        return self._sent


async def answer_many(
    requests: AsyncIterator[HeldMessage],
    context: Context,
    serve: Serve[Response],
    messages: ManyMessages,
) -> AsyncGenerator[Any, None]:
    """Answer the ``requests`` of a call concurrently, each as ``serve`` does; yield messages of
    ``messages.whole``. A request that fails is answered with its failure; a broken call, or one
    that is not allowed, ends all of them."""
    many = _ManyRequests(context, serve, messages)
    async with aclosing(many.answer(requests)) as answers:
        async for answer in answers:
            yield answer
