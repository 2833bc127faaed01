"""An answer as a stream of chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from types import TracebackType
from typing import Self

from specmesh.client.answers.messages import NOTHING_SAID, MessageParts
from specmesh.client.answers.received import ReceivedAnswer
from specmesh.client.answers.resumable import Asked, ResumableCall
from specmesh.client.answers.sessions import SavedSession
from specmesh.client.answers.values import (
    Chunk,
    GenerationResult,
    GenerationStats,
    TokenKind,
    TokenLogprobs,
    chunk_from,
    deltas_in,
    finish_reason_from,
    stats_from,
    stop_reason_from,
)
from specmesh.client.connections.targets import Turns
from specmesh.client.errors import SpecmeshError
from specmesh.client.hooks import Ended
from specmesh.client.requests.chats import ChatMessage
from specmesh.client.telemetry import GenerateSpan
from specmesh.v1 import events_pb2


class GenerationStream:
    """The chunks of one answer: iterate once with ``async for chunk in stream``, or ``await`` it.

    The first step of the iteration sends the request. Leaving the loop early, or cancelling its
    task, cancels all work behind it; ``async with`` does so at the end of its block at the latest,
    and `aclose` at any time, from any task. Reading on after that raises Cancelled.
    Iteration raises a SpecmeshError if the answer can't be completed; the chunks received before
    stay valid and remain available in the properties and in the ``session`` of the error.
    """

    def __init__(self, targets: Callable[[], Turns], asked: Asked) -> None:
        self._targets = targets
        self._asked = asked
        self._call: ResumableCall | None = None
        self._is_closed = False
        self._is_whole = False
        """True if nobody reads chunks, only the result."""
        self._answer = _Answer(asked.saved)
        self._result: GenerationResult | None = None

    @property
    def text(self) -> str:
        """The text read so far; for a resumed answer it begins with the saved text.

        Raises RuntimeError before the first step of reading, which sends the request.
        """
        self._check_begun()
        return "".join(self._answer.texts)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The token ids read so far; otherwise as `text`."""
        self._check_begun()
        return tuple(self._answer.token_ids)

    @property
    def message(self) -> ChatMessage:
        """The model's message read so far, for the next turn of a chat; otherwise as `text`."""
        self._check_begun()
        return self._answer.message

    @property
    def session_id(self) -> str:
        """The answer's id in logs and traces; empty before it has begun."""
        return self._started.session_id

    @property
    def seed(self) -> int | None:
        """The seed in use, given or drawn; None before the answer has begun."""
        return self._started.seed if self.session_id else None

    @property
    def num_prompt_tokens(self) -> int | None:
        """The number of tokens of the prompt; None before the answer has begun."""
        return self._started.num_prompt_tokens or None

    @property
    def stats(self) -> GenerationStats | None:
        """Tokens, calls and times up to the latest chunk; None before the first chunk.

        They are counted by the orchestrator that serves, or last served, the answer."""
        stats = self._answer.stats
        return None if stats is None else stats_from(stats)

    @property
    def session(self) -> SavedSession | None:
        """The state to resume the answer from here, in any process; None before it has begun."""
        if self._call is None:
            return self._asked.saved
        return self._call.answer.saved(self.text, self.message)

    @property
    def result(self) -> GenerationResult:
        """The whole answer. Raises RuntimeError before the stream has ended."""
        if self._result is None:
            raise RuntimeError("the stream has not ended, so there is no result yet")
        return self._result

    def __await__(self) -> Generator[object, None, GenerationResult]:
        return self._whole().__await__()

    async def aclose(self) -> None:
        """Cancel the answer and all work behind it; does nothing after the end."""
        self._is_closed = True
        if self._call is not None:
            self._call.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # A generator rather than an iterator class: leaving the loop closes it, and with it the call.
    # That works only if nothing but the loop holds a reference to it.
    async def __aiter__(self) -> AsyncGenerator[Chunk, None]:
        if self._call is not None:
            raise RuntimeError("a stream can be read only once")
        span = GenerateSpan(self._asked.request)
        self._call = call = ResumableCall(
            self._targets(), self._asked, span, is_whole=self._is_whole
        )
        if self._is_closed:
            call.close()
        error: Exception | None = None
        try:
            while True:
                event = await call.next_event()
                chunk = self._answer.absorb(event)
                if chunk is not None:
                    span.chunk()
                    yield chunk
                if event.HasField("finished"):
                    self._result = self._answer.result(call.answer, event.finished)
                    span.finished(self._result)
                    await call.end()
                    return
        except Exception as raised:
            if isinstance(raised, SpecmeshError):
                raised.session = self.session
            if call.is_closed:
                span.cancelled()
            else:
                error = raised
                span.failed(raised)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            span.cancelled()
            raise
        finally:
            call.cancel()
            span.end()
            self._asked.hooks.ended(Ended(self.session_id, self._result, error))

    def _check_begun(self) -> None:
        if self._call is None and self._asked.saved is None:
            raise RuntimeError("the stream has not been read, so no request has been sent yet")

    async def _whole(self) -> GenerationResult:
        if self._result is None:
            self._is_whole = True
            async for _ in self:
                pass
        return self.result

    @property
    def _started(self) -> events_pb2.GenerationStarted:
        """The `started` event; empty before the answer has begun."""
        started = self._call.answer.started if self._call else None
        return started or events_pb2.GenerationStarted()


class _Answer:
    """The collected chunks of an answer, after its saved part."""

    def __init__(self, saved: SavedSession | None) -> None:
        self.token_ids: list[int] = list(saved.token_ids) if saved else []
        self.texts: list[str] = [saved.text] if saved else []
        self._kinds: list[TokenKind] = _kinds(saved) if saved else []
        self._logprobs: list[TokenLogprobs] = []
        self._is_parsed = False
        self._has_tail = saved is not None and saved.has_ended
        """True if the saved part includes the text that `finished` brings."""
        self._parts = MessageParts(saved.message if saved else NOTHING_SAID)
        self.stats: events_pb2.GenerationStats | None = None

    @property
    def message(self) -> ChatMessage:
        """The model's message so far."""
        return self._parts.message

    def absorb(self, event: events_pb2.GenerationEvent) -> Chunk | None:
        """Add an event and return the chunk in it, or None."""
        if event.HasField("started"):
            self._is_parsed = event.started.has_deltas
        elif event.HasField("finished"):
            self.stats = event.finished.stats
        elif event.chunk.HasField("stats"):
            self.stats = event.chunk.stats
        if event.HasField("chunk"):
            chunk = chunk_from(event.chunk, is_parsed=self._is_parsed)
        elif self._has_tail:
            return None
        elif event.HasField("finished") and (event.finished.text or event.finished.deltas):
            tail, is_stored = event.finished.text, event.finished.resumable
            deltas = deltas_in(event.finished, is_parsed=self._is_parsed)
            chunk = Chunk(len(self.token_ids), (), tail, resumable=is_stored, deltas=deltas)
        else:
            return None
        self._parts.add(chunk.deltas)
        self._kinds += chunk.kinds
        self._logprobs += chunk.logprobs
        self.token_ids += chunk.token_ids
        self.texts.append(chunk.text)
        return chunk

    def result(
        self, answer: ReceivedAnswer, finished: events_pb2.GenerationFinished
    ) -> GenerationResult:
        started = answer.started
        assert started is not None
        return GenerationResult(
            text="".join(self.texts),
            token_ids=tuple(self.token_ids),
            kinds=tuple(self._kinds),
            logprobs=tuple(self._logprobs),
            finish_reason=finish_reason_from(finished.finish_reason),
            stop_reason=stop_reason_from(finished),
            stats=stats_from(finished.stats),
            session_id=started.session_id,
            epoch=started.epoch,
            model=started.model,
            strategy=started.strategy,
            seed=started.seed,
            resumable=finished.resumable,
            num_resumes=answer.num_resumes,
            model_fingerprint=started.model_fingerprint,
            message=self.message,
        )


def _kinds(saved: SavedSession) -> list[TokenKind]:
    """Return the kinds of the saved tokens: a session records only which are unchecked."""
    unchecked = frozenset(saved.unchecked)
    return [
        TokenKind.UNCHECKED if index in unchecked else TokenKind.UNSPECIFIED
        for index in range(len(saved.token_ids))
    ]
