"""The parts of a response that both calls share: envelope, usage, and the field ``specmesh``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from specmesh.client import Chunk, FinishReason, GenerationResult
from specmesh.gateway.requests.parameters.tables import EXTENSION

Json = dict[str, object]

_FINISH_REASONS: Mapping[FinishReason, str] = {FinishReason.LENGTH: "length"}


class Style(Protocol):
    """The format in which one of the two calls writes its choices."""

    @property
    def prefix(self) -> str:
        """The prefix of ids."""

    @property
    def object(self) -> str:
        """The ``object`` of a response."""

    @property
    def chunk_object(self) -> str:
        """The ``object`` of a part of a stream."""

    def whole(self, number: int, result: GenerationResult) -> Json:
        """Return a complete choice of a response."""

    def begin(self, number: int) -> Iterable[Json]:
        """Return the parts of a stream that precede a choice's text."""

    def more(self, number: int, chunk: Chunk) -> Json | None:
        """Return the part of a stream that continues a choice; None if there is nothing to say."""

    def last(self, number: int, result: GenerationResult) -> Json:
        """Return the part of a stream that ends a choice."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields that a response has around its choices; all parts of a stream share them."""

    style: Style
    model: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def response(self, results: Sequence[GenerationResult], usage: Json) -> Json:
        """Return a whole response."""
        choices = [self.style.whole(number, result) for number, result in enumerate(results)]
        return {
            **self._of(self.style.object),
            **fingerprint(results[0]),
            "choices": choices,
            "usage": usage,
        }

    def part(self, choices: Sequence[Json], result: GenerationResult | None = None) -> Json:
        """Return a part of a stream; ``result`` is given for the part that ends a choice."""
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
    """Return the fingerprint of the model that answered, including its weights and dtype."""
    return {"system_fingerprint": result.model_fingerprint or None}


def finish_reason(result: GenerationResult) -> str:
    """Return OpenAI's reason for the end of an answer."""
    return _FINISH_REASONS.get(result.finish_reason, "stop")


def usage(results: Sequence[GenerationResult], n: int) -> Json:
    """Return the token counts of all answers, ``n`` of each prompt, which counts once for them."""
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
        "completion_tokens_details": {
            "reasoning_tokens": sum(result.stats.num_reasoning_tokens for result in results),
        },
    }


def usage_so_far(num_prompt: int | None, num_tokens: int) -> Json | None:
    """Return the token counts of one choice after ``num_tokens``; None before it has begun, when
    those of the prompt are unknown."""
    if num_prompt is None:
        return None
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_tokens,
        "total_tokens": num_prompt + num_tokens,
    }


def extension(result: GenerationResult) -> Json:
    """Return the field ``specmesh`` of a choice, which describes how it was generated."""
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
