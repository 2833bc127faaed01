"""What both calls answer alike: the envelope, usage, and our own field."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from specmesh.client import Chunk, FinishReason, GenerationResult
from specmesh.gateway.requests.parameters import EXTENSION

Json = dict[str, object]

_FINISH_REASONS: Mapping[FinishReason, str] = {FinishReason.LENGTH: "length"}


class Style(Protocol):
    """How one of the two calls writes its choices."""

    prefix: str
    """What ids begin with."""
    object: str
    """What a response is called."""
    chunk_object: str
    """What a part of a stream is called."""

    def whole(self, number: int, result: GenerationResult) -> Json:
        """The choice of a response."""

    def first(self, number: int) -> Json | None:
        """What a stream says of a choice before its text, if anything."""

    def more(self, number: int, chunk: Chunk) -> Json:
        """More of a choice."""

    def last(self, number: int, result: GenerationResult) -> Json:
        """The end of a choice."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every response and all parts of a stream say of themselves."""

    style: Style
    model: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def response(self, results: Sequence[GenerationResult], n: int) -> Json:
        """A whole response."""
        choices = [self.style.whole(number, result) for number, result in enumerate(results)]
        return {
            **self._of(self.style.object),
            **fingerprint(results[0]),
            "choices": choices,
            "usage": usage(results, n),
        }

    def part(self, choices: Sequence[Json], result: GenerationResult | None = None) -> Json:
        """A part of a stream; with ``result``, the one that ends a choice."""
        told = {} if result is None else fingerprint(result)
        return {**self._of(self.style.chunk_object), **told, "choices": choices}

    def _of(self, name: str) -> Json:
        return {
            "id": f"{self.style.prefix}{self.id}",
            "object": name,
            "created": self.created,
            "model": self.model,
        }


def fingerprint(result: GenerationResult) -> Json:
    """What identifies the model that answered, weights and number type included."""
    return {"system_fingerprint": result.model_fingerprint or None}


def finish_reason(result: GenerationResult) -> str:
    """OpenAI's word for why an answer ended."""
    return _FINISH_REASONS.get(result.finish_reason, "stop")


def usage(results: Sequence[GenerationResult], n: int) -> Json:
    """The tokens of all answers. A prompt counts once, however many choices it has."""
    firsts = [result.stats for result in results[::n]]
    num_prompt = sum(stats.num_prompt_tokens for stats in firsts)
    num_output = sum(result.stats.num_output_tokens for result in results)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_output,
        "total_tokens": num_prompt + num_output,
        "prompt_tokens_details": {
            "cached_tokens": sum(stats.num_cached_tokens for stats in firsts),
        },
    }


def extension(result: GenerationResult) -> Json:
    """The field ``specmesh`` of a choice: how it was answered."""
    described = {
        "session_id": result.session_id,
        "strategy": result.strategy,
        "seed": result.seed,
        "acceptance": result.stats.acceptance,
        "unchecked": list(result.unchecked),
        "num_resumes": result.num_resumes,
        "stats": asdict(result.stats),
    }
    return {EXTENSION: described}
