"""An answer as a stream of chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self

from specmesh.client.answers import (
    Chunk,
    GenerationResult,
    chunk_from,
    finish_reason_from,
    stats_from,
)
from specmesh.client.errors import SpecmeshError
from specmesh.client.recovery import Limits
from specmesh.client.resumable import ResumableCall
from specmesh.client.targets import Endpoint
from specmesh.client.telemetry import GenerateSpan
from specmesh.v1 import generation_pb2 as pb


class GenerationStream:
    """The chunks of one answer: ``async for chunk in stream``, once.

    The request is sent with the first step of the iteration. Leaving the loop early, or
    cancelling the task in it, cancels all work behind it; ``async with`` does so at the end
    of its block at the latest. Raises a SpecmeshError if the answer can't be completed; the
    chunks that came before stay valid.
    """

    def __init__(
        self, targets: Iterator[Endpoint], request: pb.GenerateRequest, limits: Limits
    ) -> None:
        self._targets = targets
        self._request = request
        self._limits = limits
        self._call: ResumableCall | None = None
        self._result: GenerationResult | None = None

    @property
    def session_id(self) -> str:
        """Identifies the answer in logs and traces; empty before it has begun."""
        started = self._call.started if self._call else None
        return started.session_id if started else ""

    @property
    def result(self) -> GenerationResult:
        """The whole answer. Raises RuntimeError before the stream has ended."""
        if self._result is None:
            raise RuntimeError("the stream has not ended: there is no result yet")
        return self._result

    async def text(self) -> str:
        """Read the stream to its end and return the whole text."""
        async for _ in self:
            pass
        return self.result.text

    async def aclose(self) -> None:
        """Cancel the answer and all work behind it; harmless after the end."""
        if self._call is not None:
            self._call.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # A generator, not an iterator of our own: it is closed, and the call with it, as soon as
    # the loop over it is left. For that nothing but the loop may hold a reference to it.
    async def __aiter__(self) -> AsyncIterator[Chunk]:
        if self._call is not None:
            raise RuntimeError("a stream can be read only once")
        span = GenerateSpan(self._request)
        self._call = call = ResumableCall(self._targets, self._request, self._limits, span)
        answer = _Answer()
        try:
            while True:
                event = await call.next_event()
                chunk = answer.absorb(event)
                if chunk is not None:
                    span.chunk()
                    yield chunk
                if event.HasField("finished"):
                    self._result = answer.result(call, event.finished)
                    span.finished(self._result)
                    return
        except SpecmeshError as error:
            span.failed(error)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            span.cancelled()
            raise
        finally:
            call.cancel()
            span.end()


class _Answer:
    """Collects the chunks of an answer."""

    def __init__(self) -> None:
        self._token_ids: list[int] = []
        self._unchecked: list[int] = []
        self._texts: list[str] = []

    def absorb(self, event: pb.GenerationEvent) -> Chunk | None:
        """Add an event; returns the chunk in it for the reader, if there is one."""
        if event.HasField("chunk"):
            chunk = chunk_from(event.chunk)
        elif event.HasField("finished") and event.finished.text:
            chunk = Chunk(len(self._token_ids), (), event.finished.text)
        else:
            return None
        self._unchecked += [len(self._token_ids) + index for index in chunk.unchecked]
        self._token_ids += chunk.token_ids
        self._texts.append(chunk.text)
        return chunk

    def result(self, call: ResumableCall, finished: pb.GenerationFinished) -> GenerationResult:
        assert call.started is not None
        return GenerationResult(
            text="".join(self._texts),
            token_ids=tuple(self._token_ids),
            unchecked=tuple(self._unchecked),
            finish_reason=finish_reason_from(finished),
            stats=stats_from(finished.stats),
            session_id=call.started.session_id,
            epoch=call.started.epoch,
            model=call.started.model,
            strategy=call.started.strategy,
            seed=call.started.seed,
            resumable=finished.resumable,
            num_resumes=call.num_resumes,
        )
