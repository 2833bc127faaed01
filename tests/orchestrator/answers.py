"""What a client asks for and what it gets."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass, field

import grpc
import grpc.aio
import pytest
from tests.orchestrator.model import TOKENIZER, target_only, text_after

from specmesh.serving.codec.wire import read_sampling
from specmesh.serving.errors import error_info
from specmesh.v1 import events_pb2, sampling_pb2
from specmesh.v1 import generation_pb2 as pb

PROMPT = "def f(x): return x und größer für hello world"
PROMPT_IDS = TOKENIZER.encode(PROMPT).ids
NUM_TOKENS = 40


def request(**fields: object) -> pb.GenerateRequest:
    """A greedy request for ``NUM_TOKENS`` tokens unless ``fields`` say otherwise."""
    defaults = {
        "text": PROMPT,
        "sampling": {"temperature": 0},
        "stopping": {"max_tokens": NUM_TOKENS},
    }
    return pb.GenerateRequest(**defaults | fields)


@dataclass(slots=True)
class Answer:
    """The events of an answer, in part or whole."""

    started: events_pb2.GenerationStarted = field(default_factory=events_pb2.GenerationStarted)
    chunks: list[events_pb2.GenerationChunk] = field(default_factory=list)
    finished: events_pb2.GenerationFinished | None = None

    @property
    def tokens(self) -> list[int]:
        return [token for chunk in self.chunks for token in chunk.token_ids]

    @property
    def text(self) -> str:
        text = "".join(chunk.text for chunk in self.chunks)
        return text + (self.finished.text if self.finished is not None else "")

    def add(self, event: events_pb2.GenerationEvent) -> None:
        """Take the next event, in the one order that is allowed."""
        assert self.finished is None
        match event.WhichOneof("kind"):
            case "started":
                assert not self.started.session_id
                self.started = event.started
            case "chunk":
                assert self.started.session_id
                if self.chunks:
                    end = self.chunks[-1].first_index + len(self.chunks[-1].token_ids)
                    assert event.chunk.first_index == end
                self.chunks.append(event.chunk)
            case "finished":
                self.finished = event.finished

    @property
    def kinds(self) -> list[int]:
        """How each token came about."""
        return [kind for chunk in self.chunks for kind in chunk.kinds]

    @property
    def unchecked(self) -> list[int]:
        """The positions of tokens that the target did not check."""
        first = self.chunks[0].first_index if self.chunks else 0
        unchecked = events_pb2.TOKEN_KIND_UNCHECKED
        return [first + n for n, kind in enumerate(self.kinds) if kind == unchecked]

    @property
    def received(self) -> pb.Received:
        """What its client has of it."""
        return pb.Received(token_ids=self.tokens, unchecked=self.unchecked)

    def then(self, rest: Answer) -> Answer:
        """This answer, cut off, carried on by ``rest``."""
        if rest.chunks:
            assert rest.chunks[0].first_index == len(self.tokens)
        return Answer(rest.started, [*self.chunks, *rest.chunks], rest.finished)


def resuming(begun: Answer, **fields: object) -> pb.ResumeRequest:
    """What a client asks that has all of ``begun``, unless ``fields`` say otherwise."""
    started = begun.started
    defaults = {
        "session_id": started.session_id,
        "resume_token": started.resume_token,
        "epoch": started.epoch + 1,
        "received": begun.received,
    }
    return pb.ResumeRequest(**defaults | fields)


async def collect(
    call: AsyncIterable[pb.GenerateResponse | pb.ResumeResponse],
    num_chunks: int | None = None,
    begun: Answer | None = None,
) -> Answer:
    """The events of ``call``, added to those ``begun``: all, or up to a number of chunks."""
    answer = begun or Answer()
    async for response in call:
        answer.add(response.event)
        if num_chunks is not None and len(answer.chunks) == num_chunks:
            break
    return answer


def alone(sampling: sampling_pb2.SamplingParameters, num_tokens: int = NUM_TOKENS) -> list[int]:
    """The tokens that the target says on its own to ``PROMPT``."""
    return target_only(PROMPT_IDS, num_tokens, read_sampling(sampling))


def said(tokens: list[int]) -> str:
    """The text of an answer to ``PROMPT``."""
    return text_after(PROMPT_IDS, tokens)


async def refusal(call: AsyncIterable[object]) -> tuple[grpc.StatusCode, str]:
    """The status and the reason with which ``call`` ends."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        [event async for event in call]
    info = error_info(raised.value)
    assert info is not None
    return raised.value.code(), info.reason
