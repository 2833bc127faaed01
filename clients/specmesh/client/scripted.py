"""The answers and refusals that a test scripts for a ``FakeMesh``, as messages."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from specmesh.client.requests.chats import ToolCall
from specmesh.v1 import events_pb2

ScriptedToken = str | ToolCall
"""A token's contribution to an answer."""

MODEL = "fake"
STRATEGY = "autoregressive"
SEED = 7


@dataclass(slots=True)
class ScriptedFailure:
    """A refusal of a call, or its end in the middle. ``field`` is the wrong field of an
    INVALID_ARGUMENT."""

    code: grpc.StatusCode
    message: str
    reason: str = ""
    retry_after_s: float | None = None
    field: str = ""

    def abort(self, context: grpc.ServicerContext) -> AssertionError:
        """Abort the call, which raises; the return value is only for the type checker."""
        status = Status(code=self.code.value[0], message=self.message)
        for detail in self._details():
            status.details.add().Pack(detail)
        context.abort_with_status(rpc_status.to_status(status))
        return AssertionError("abort_with_status raises")

    def _details(self) -> Iterator[Message]:
        if self.reason:
            yield ErrorInfo(reason=self.reason, domain="specmesh.dev")
        if self.retry_after_s is not None:
            delay = Duration()
            delay.FromNanoseconds(round(self.retry_after_s * 1e9))
            yield RetryInfo(retry_delay=delay)
        if self.field:
            violation = BadRequest.FieldViolation(field=self.field, description=self.message)
            yield BadRequest(field_violations=[violation])


_BREAK = ScriptedFailure(grpc.StatusCode.UNAVAILABLE, "the test breaks the call here")
_CANCELLED = ScriptedFailure(
    grpc.StatusCode.ABORTED, "the session was cancelled", "SESSION_CANCELLED"
)


@dataclass(slots=True)
class ScriptedSession:
    """An answer: each of ``said`` is a token, sent in a chunk of its own. The call breaks after
    each number of tokens in ``breaks``."""

    session_id: str
    said: tuple[ScriptedToken, ...]
    breaks: deque[int]
    epoch: int = 0
    num_said: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def texts(self) -> list[str]:
        """The text of each token."""
        return [each if isinstance(each, str) else _written(each) for each in self.said]

    @property
    def deltas(self) -> list[events_pb2.MessageDelta]:
        """The contributions of the tokens to the model's message."""
        deltas, index = [], 0
        for each in self.said:
            if isinstance(each, str):
                deltas.append(events_pb2.MessageDelta(content=each))
            else:
                call = events_pb2.ToolCallDelta(index=index, **asdict(each))
                deltas.append(events_pb2.MessageDelta(tool_call=call))
                index += 1
        return deltas

    @property
    def resume_token(self) -> bytes:
        """The secret with which a client resumes or cancels it."""
        return f"secret of {self.session_id}".encode()

    def events(
        self, epoch: int, num_received: int, context: grpc.ServicerContext
    ) -> Iterator[events_pb2.GenerationEvent]:
        """Yield the answer without its first ``num_received`` tokens; abort the call where the
        script says so, or once the session is cancelled."""
        self.epoch = epoch
        yield events_pb2.GenerationEvent(started=self.started())
        for number, (text, delta) in enumerate(zip(self.texts, self.deltas, strict=True)):
            self._end_if_scripted(number, context)
            if number >= num_received:
                yield events_pb2.GenerationEvent(chunk=_chunk(number, text, delta))
                self.num_said = number + 1
        self._end_if_scripted(len(self.said), context)
        yield events_pb2.GenerationEvent(finished=self.finished())

    def _end_if_scripted(self, num_said: int, context: grpc.ServicerContext) -> None:
        """Abort the call if it breaks after ``num_said`` tokens, or the session is cancelled."""
        if self.breaks and self.breaks[0] <= num_said:
            self.breaks.popleft()
            raise _BREAK.abort(context)
        if self.cancelled.is_set():
            raise _CANCELLED.abort(context)

    def started(self) -> events_pb2.GenerationStarted:
        """Return the first message of the answer."""
        return events_pb2.GenerationStarted(
            session_id=self.session_id,
            resume_token=self.resume_token,
            epoch=self.epoch,
            model=MODEL,
            strategy=STRATEGY,
            seed=SEED,
            num_prompt_tokens=1,
            resumable=True,
            has_deltas=True,
        )

    def finished(self) -> events_pb2.GenerationFinished:
        """Return the last message of the answer."""
        return events_pb2.GenerationFinished(
            finish_reason=events_pb2.FINISH_REASON_STOP,
            resumable=True,
            stats=_stats(len(self.said)),
        )


def _written(call: ToolCall) -> str:
    """Return a call as a model of the format "hermes" writes it."""
    return f'<tool_call>{{"name": "{call.name}", "arguments": {call.arguments}}}</tool_call>'


def _chunk(number: int, text: str, delta: events_pb2.MessageDelta) -> events_pb2.GenerationChunk:
    return events_pb2.GenerationChunk(
        first_index=number,
        token_ids=[number],
        text=text,
        text_lengths=[len(text)],
        kinds=[events_pb2.TOKEN_KIND_BONUS],
        resumable=True,
        stats=_stats(number + 1),
        deltas=[delta],
    )


def _stats(num_output_tokens: int) -> events_pb2.GenerationStats:
    return events_pb2.GenerationStats(num_prompt_tokens=1, num_output_tokens=num_output_tokens)
