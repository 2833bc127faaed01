"""Answers as a stream of server-sent events. An error after the stream has begun is an event of its
own and ends the stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request as HttpRequest
from starlette.types import Receive, Scope, Send

from specmesh.client import GenerationResult, SpecmeshError
from specmesh.gateway.errors import ApiError, from_mesh, internal, shutting_down
from specmesh.gateway.http.hang_up import unless_gone
from specmesh.gateway.http.record import Record
from specmesh.gateway.json_text import pieces, write_json
from specmesh.gateway.responses.answers import AnswerEnded, AnswerStreams, Event
from specmesh.gateway.responses.envelope import Json
from specmesh.gateway.responses.reply import Reply

log = logging.getLogger(__name__)

LINE_END = "\n"
PING = f": ping{LINE_END}".encode()
"""A comment line without a blank line after it, which strict clients would take for the end of an
empty event."""


class Reader:
    """Reads one event ahead, so that an early failure can still get an HTTP status of its own.
    ``broken_off`` is done once the gateway ends."""

    def __init__(
        self, answers: AnswerStreams, ping_s: float, broken_off: asyncio.Future[None]
    ) -> None:
        self._ping_s = ping_s
        self._broken_off = broken_off
        self._events = answers.events()
        self._next = asyncio.ensure_future(anext(self._events))

    async def begun(self) -> None:
        """Return after the first event or ``ping_s``. Raises the SpecmeshError of an answer that
        fails before its first event."""
        await asyncio.wait({self._next}, timeout=self._ping_s)
        if self._next.done():
            self._next.result()

    async def __aiter__(self) -> AsyncIterator[Event | None]:
        """Yield each event, and None whenever none has come for ``ping_s``. Raises ``ApiError`` 503
        once the gateway ends."""
        while True:
            either: set[asyncio.Future[Any]] = {self._next, self._broken_off}
            await asyncio.wait(either, timeout=self._ping_s, return_when=asyncio.FIRST_COMPLETED)
            if self._broken_off.done():
                raise shutting_down()
            if not self._next.done():
                yield None
                continue
            try:
                event = self._next.result()
            except StopAsyncIteration:
                return
            self._next = asyncio.ensure_future(anext(self._events))
            yield event

    async def aclose(self) -> None:
        """Cancel the answers that still run."""
        self._next.cancel()
        await asyncio.gather(self._next, return_exceptions=True)
        await self._events.aclose()


class Streamed(EventSourceResponse):
    """A response that always closes its reader, even if it never began."""

    def __init__(self, body: AsyncIterator[ServerSentEvent | bytes], reader: Reader) -> None:
        # ping=0: sse_starlette's pings come between frequent events, too, and end in a blank line.
        super().__init__(body, ping=0, sep=LINE_END)
        # The server alone knows whether the connection stays open.
        del self.headers["connection"]
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._reader.aclose()


async def stream(
    request: HttpRequest, answers: AnswerStreams, reply: Reply, ping_s: float
) -> Streamed:
    """Return the response, after the first event or ``ping_s``. The stream then has a comment
    whenever no event has come for ``ping_s``.

    Raises the errors of ``Reader.begun``, and ``ClientGone``.
    """
    reader = Reader(answers, ping_s, request.state.broken_off)
    try:
        await unless_gone(request, reader.begun())
    except BaseException:
        await reader.aclose()
        raise
    body = _body(reader, reply, request.state.record, answers.num_candidates)
    return Streamed(body, reader)


async def _body(
    reader: Reader, reply: Reply, record: Record, num_per_prompt: int
) -> AsyncIterator[ServerSentEvent | bytes]:
    try:
        async for part in _parts(reader, reply, record, num_per_prompt):
            yield PING if part is None else _event(part)
    except ApiError as error:
        record.failed(error)
    except SpecmeshError as error:
        record.failed(from_mesh(error, record.names, knows_caller=bool(record.identity)))
    except Exception:
        log.exception("failed", extra={"request_id": record.request_id})
        record.failed(internal(record.request_id))
    if record.error is not None:
        for part in reply.fail(record.error):
            yield _event(part)
    elif reply.end_mark:
        yield ServerSentEvent(reply.end_mark, sep=LINE_END)


async def _parts(
    reader: Reader, reply: Reply, record: Record, num_per_prompt: int
) -> AsyncIterator[Json | None]:
    """Yield the parts of the stream, and None for each comment."""
    results: dict[int, GenerationResult] = {}
    for part in reply.begin():
        yield part
    async for event in reader:
        if event is None:
            yield None
            continue
        if isinstance(event, AnswerEnded):
            results[event.number] = event.result
            parts = reply.end(event)
        else:
            record.said()
            parts = reply.more(event)
        for part in parts:
            yield part
    record.answered([result for _, result in sorted(results.items())], num_per_prompt)
    for part in reply.finish(record.results):
        yield part


def _event(part: Json) -> bytes:
    """Return the event with ``part``, which may be long: JSON has no line ends to look for."""
    if (name := part.get("type")) is None:
        return f"data: {write_json(part)}{LINE_END}{LINE_END}".encode()
    return f"event: {name}{LINE_END}data: {''.join(pieces(part))}{LINE_END}{LINE_END}".encode()
