"""The values that the client returns: plain frozen dataclasses, no protobuf."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from specmesh.v1 import events_pb2, model_pb2, served_model_pb2


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
    events_pb2.FINISH_REASON_END_OF_TEXT: FinishReason.END_OF_TEXT,
    events_pb2.FINISH_REASON_STOP: FinishReason.STOP,
    events_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
}


class TokenKind(StrEnum):
    """The origin of a token of an answer."""

    ACCEPTED = "accepted"
    """A draft token that the target accepted."""
    RECOVERED = "recovered"
    """The target's own token, in place of a draft token that it rejected."""
    BONUS = "bonus"
    """The target's own token, after a fully accepted draft or without a draft."""
    UNCHECKED = "unchecked"
    """A draft token that the target did not check; only the strategy ``filter`` has these."""
    UNSPECIFIED = "unspecified"
    """A token of a part resumed from a SavedSession, or of a kind that this version does not know.
    """


_TOKEN_KINDS = {
    events_pb2.TOKEN_KIND_ACCEPTED: TokenKind.ACCEPTED,
    events_pb2.TOKEN_KIND_RECOVERED: TokenKind.RECOVERED,
    events_pb2.TOKEN_KIND_BONUS: TokenKind.BONUS,
    events_pb2.TOKEN_KIND_UNCHECKED: TokenKind.UNCHECKED,
}


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token, its log-probability, and the bytes that it adds, or would add in place of the chosen
    token, to the answer's text. They need not be valid UTF-8; special tokens have no bytes."""

    token_id: int
    logprob: float
    bytes: bytes


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The target's log-probabilities at one position: of the chosen token and of the likeliest
    tokens, best first. They are natural logarithms of the softmax of the target's logits, before
    any sampling parameter is applied. ``text_offset`` counts the characters of the answer's text
    before the token."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]
    text_offset: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next tokens of an answer; they are committed, so they never change.

    ``first_index`` counts the generated tokens before the chunk. ``text`` may lag behind
    ``token_ids``; the concatenated texts of all chunks are the answer. Each token has an entry in
    ``kinds`` (its origin), in ``texts`` (the part of ``text`` that it completes) and, if
    requested, in ``logprobs``. ``resumable`` tells whether the answer so far is in the store; it is
    false while the store is slow or down.
    """

    first_index: int
    token_ids: tuple[int, ...]
    text: str
    kinds: tuple[TokenKind, ...] = ()
    texts: tuple[str, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    resumable: bool = False

    @property
    def unchecked(self) -> tuple[int, ...]:
        """The indexes in ``token_ids`` of those that the target did not check."""
        return _unchecked(self.kinds)


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """Tokens, calls and times of an answer, counted by the orchestrator that last served it."""

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
    num_cached_tokens: int = 0
    explanation: str = ""
    """The strategy's choice for the answer, and the reason; empty if it makes no choices."""

    @property
    def acceptance(self) -> float | None:
        """Accepted draft tokens over verified draft tokens, 0 to 1; None without drafts."""
        if self.num_verified_tokens == 0:
            return None
        return self.num_accepted_tokens / self.num_verified_tokens


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """A whole answer.

    ``kinds`` has the origin of each token. ``resumable`` is false if the store lacked tokens at
    the end. ``num_resumes`` counts the times that the stream broke and another call resumed it.
    ``model_fingerprint`` identifies the model, its weights and their dtype.
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
    kinds: tuple[TokenKind, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    model_fingerprint: str = ""

    @property
    def unchecked(self) -> tuple[int, ...]:
        """The indexes in ``token_ids`` of those that the target did not check."""
        return _unchecked(self.kinds)


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A chat rendered by the model's template, as text and as tokens."""

    text: str
    token_ids: tuple[int, ...]


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
class Strategy:
    """A strategy of speculation. A ``lossless`` one never changes the target's text; an
    ``available`` one has all it needs in the mesh; ``options`` are the keyword arguments of
    ``generate`` that it uses."""

    name: str
    lossless: bool
    available: bool
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A target, its drafters, and the strategies for it."""

    target: Model
    drafters: tuple[Model, ...]
    num_verifiers: int
    strategies: tuple[Strategy, ...]
    default_strategy: str
    default_lookahead: int
    has_chat_template: bool = False


def chunk_from(message: events_pb2.GenerationChunk) -> Chunk:
    """Convert a chunk message."""
    return Chunk(
        first_index=message.first_index,
        token_ids=tuple(message.token_ids),
        text=message.text,
        kinds=tuple(_TOKEN_KINDS.get(kind, TokenKind.UNSPECIFIED) for kind in message.kinds),
        texts=_parts(message.text, message.text_lengths),
        logprobs=tuple(map(logprobs_from, message.logprobs)),
        resumable=message.resumable,
    )


def _unchecked(kinds: Sequence[TokenKind]) -> tuple[int, ...]:
    return tuple(index for index, kind in enumerate(kinds) if kind is TokenKind.UNCHECKED)


def _parts(text: str, lengths: Iterable[int]) -> tuple[str, ...]:
    ends = itertools.accumulate(lengths, initial=0)
    return tuple(text[start:end] for start, end in itertools.pairwise(ends))


def finish_reason_from(reason: events_pb2.FinishReason.ValueType) -> FinishReason:
    """Convert a finish reason of the protocol."""
    return _FINISH_REASONS.get(reason, FinishReason.UNSPECIFIED)


def stats_from(message: events_pb2.GenerationStats) -> GenerationStats:
    """Convert a statistics message."""
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
        num_cached_tokens=message.num_cached_tokens,
        explanation=message.explanation,
    )


def served_model_from(message: served_model_pb2.ServedModel) -> ServedModel:
    """Convert a served model message."""
    return ServedModel(
        target=_model_from(message.target),
        drafters=tuple(map(_model_from, message.drafters)),
        num_verifiers=message.num_verifiers,
        strategies=tuple(map(_strategy_from, message.strategies)),
        default_strategy=message.default_strategy,
        default_lookahead=message.default_lookahead,
        has_chat_template=message.has_chat_template,
    )


def logprobs_from(message: events_pb2.TokenLogprobs) -> TokenLogprobs:
    """Convert the log-probabilities at one position."""
    return TokenLogprobs(
        chosen=_logprob_from(message.chosen),
        top=tuple(map(_logprob_from, message.top)),
        text_offset=message.text_offset,
    )


def _logprob_from(message: events_pb2.TokenLogprob) -> TokenLogprob:
    return TokenLogprob(message.token_id, message.logprob, message.text_bytes)


def _strategy_from(message: served_model_pb2.StrategyInfo) -> Strategy:
    return Strategy(message.name, message.lossless, message.available, tuple(message.options))


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
