"""What the client returns to its caller: plain frozen values, no protobuf."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import model_pb2


class FinishReason(StrEnum):
    """Why an answer ended."""

    END_OF_TEXT = "end_of_text"
    """The model generated an end-of-text token."""
    STOP = "stop"
    """The answer reached a stop token or stop string."""
    LENGTH = "length"
    """``max_tokens`` or the end of the context was reached."""
    UNSPECIFIED = "unspecified"
    """A reason that this version of the client does not know."""


_FINISH_REASONS = {
    pb.FINISH_REASON_END_OF_TEXT: FinishReason.END_OF_TEXT,
    pb.FINISH_REASON_STOP: FinishReason.STOP,
    pb.FINISH_REASON_LENGTH: FinishReason.LENGTH,
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next tokens of an answer; committed, so they never change.

    ``first_index`` counts the generated tokens before it. ``text`` may lag behind
    ``token_ids``; the texts of all chunks joined are the answer. ``unchecked`` are the indexes
    in ``token_ids`` of those that the target did not check: only under the strategy ``filter``.
    """

    first_index: int
    token_ids: tuple[int, ...]
    text: str
    unchecked: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """Tokens, calls and times of an answer, as counted by the orchestrator that finished it."""

    num_prompt_tokens: int
    num_output_tokens: int
    num_verify_calls: int
    num_verified_tokens: int
    num_accepted_tokens: int
    num_wasted_tokens: int
    time_to_first_token_ms: float
    duration_ms: float
    num_drafted_tokens: int = 0
    num_target_tokens: int = 0
    num_unchecked_tokens: int = 0

    @property
    def acceptance(self) -> float | None:
        """Accepted draft tokens over verified draft tokens, 0 to 1; None without drafts."""
        if self.num_verified_tokens == 0:
            return None
        return self.num_accepted_tokens / self.num_verified_tokens


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """A whole answer.

    ``unchecked`` are the indexes in ``token_ids`` of tokens that the target did not check: only
    under the strategy ``filter``. ``resumable`` is false if the store lacked tokens at the end;
    ``num_resumes`` counts how often the stream broke and was continued by another call.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stats: GenerationStats
    session_id: str
    epoch: int
    model: str
    strategy: str
    seed: int
    resumable: bool
    num_resumes: int
    unchecked: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """A model that serves as target or drafter."""

    name: str
    vocab_size: int
    context_tokens: int
    end_of_text_ids: tuple[int, ...]
    tokenizer_fingerprint: str
    num_parameters: int
    backend: str
    weights_digest: str
    dtype: str
    revision: str


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A target, its drafters, and the strategies that it can be used with."""

    target: Model
    drafters: tuple[Model, ...]
    num_verifiers: int
    strategies: tuple[str, ...]
    default_strategy: str
    default_lookahead: int


def chunk_from(message: pb.GenerationChunk) -> Chunk:
    """The chunk in a message."""
    return Chunk(
        message.first_index, tuple(message.token_ids), message.text, tuple(message.unchecked)
    )


def finish_reason_from(message: pb.GenerationFinished) -> FinishReason:
    """The reason in a message."""
    return _FINISH_REASONS.get(message.finish_reason, FinishReason.UNSPECIFIED)


def stats_from(message: pb.GenerationStats) -> GenerationStats:
    """The statistics in a message."""
    return GenerationStats(
        num_prompt_tokens=message.num_prompt_tokens,
        num_output_tokens=message.num_output_tokens,
        num_verify_calls=message.num_verify_calls,
        num_verified_tokens=message.num_verified_tokens,
        num_accepted_tokens=message.num_accepted_tokens,
        num_wasted_tokens=message.num_wasted_tokens,
        time_to_first_token_ms=message.time_to_first_token_ms,
        duration_ms=message.duration_ms,
        num_drafted_tokens=message.num_drafted_tokens,
        num_target_tokens=message.num_target_tokens,
        num_unchecked_tokens=message.num_unchecked_tokens,
    )


def served_model_from(message: pb.ServedModel) -> ServedModel:
    """The served model in a message."""
    return ServedModel(
        target=_model_from(message.target),
        drafters=tuple(map(_model_from, message.drafters)),
        num_verifiers=message.num_verifiers,
        strategies=tuple(message.strategies),
        default_strategy=message.default_strategy,
        default_lookahead=message.default_lookahead,
    )


def _model_from(message: model_pb2.ModelInfo) -> Model:
    return Model(
        name=message.name,
        vocab_size=message.vocab_size,
        context_tokens=message.context_tokens,
        end_of_text_ids=tuple(message.end_of_text_ids),
        tokenizer_fingerprint=message.tokenizer_fingerprint,
        num_parameters=message.num_parameters,
        backend=message.backend,
        weights_digest=message.weights_digest,
        dtype=message.dtype,
        revision=message.revision,
    )
