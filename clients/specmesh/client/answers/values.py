"""The values that the client returns: plain frozen dataclasses, no protobuf."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from specmesh.client.answers.messages import NOTHING_SAID, MessageDelta, deltas_from
from specmesh.client.requests.chats import ChatMessage
from specmesh.v1 import events_pb2


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
    false while the store is slow or down. ``deltas`` are what the chunk adds to the model's
    message: its text, unless the mesh has found calls of tools or reasoning in it.
    """

    first_index: int
    token_ids: tuple[int, ...]
    text: str
    kinds: tuple[TokenKind, ...] = ()
    texts: tuple[str, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    resumable: bool = False
    deltas: tuple[MessageDelta, ...] = ()

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
    """The strategy's choice for the answer, and the reason; of a strategy that makes no choices, at
    the end, why next to nothing was drafted, or nothing."""
    num_reasoning_tokens: int = 0

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
    ``model_fingerprint`` identifies the model, its weights and their dtype. ``message`` is the
    model's message, for the next turn of a chat: its content is the text, unless the mesh has found
    calls of tools or reasoning in that. ``stop_reason`` is the stop string or the stop token that
    has ended the answer, if one has.
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
    stop_reason: str | int | None = None
    message: ChatMessage = NOTHING_SAID

    @property
    def unchecked(self) -> tuple[int, ...]:
        """The indexes in ``token_ids`` of those that the target did not check."""
        return _unchecked(self.kinds)


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A chat rendered by the model's template, as text and as tokens."""

    text: str
    token_ids: tuple[int, ...]


def chunk_from(message: events_pb2.GenerationChunk, *, is_parsed: bool) -> Chunk:
    """Convert a chunk message of an answer that the mesh has parsed, or not."""
    return Chunk(
        first_index=message.first_index,
        token_ids=tuple(message.token_ids),
        text=message.text,
        kinds=tuple(_TOKEN_KINDS.get(kind, TokenKind.UNSPECIFIED) for kind in message.kinds),
        texts=_parts(message.text, message.text_lengths),
        logprobs=tuple(map(logprobs_from, message.logprobs)),
        resumable=message.resumable,
        deltas=deltas_in(message, is_parsed=is_parsed),
    )


def deltas_in(
    message: events_pb2.GenerationChunk | events_pb2.GenerationFinished, *, is_parsed: bool
) -> tuple[MessageDelta, ...]:
    """Return what ``message`` adds to the model's message."""
    if is_parsed:
        return deltas_from(message.deltas)
    return (MessageDelta(message.text),) if message.text else ()


def _unchecked(kinds: Sequence[TokenKind]) -> tuple[int, ...]:
    return tuple(index for index, kind in enumerate(kinds) if kind is TokenKind.UNCHECKED)


def _parts(text: str, lengths: Iterable[int]) -> tuple[str, ...]:
    ends = itertools.accumulate(lengths, initial=0)
    return tuple(text[start:end] for start, end in itertools.pairwise(ends))


def finish_reason_from(reason: events_pb2.FinishReason.ValueType) -> FinishReason:
    """Convert a finish reason of the protocol."""
    return _FINISH_REASONS.get(reason, FinishReason.UNSPECIFIED)


def stop_reason_from(message: events_pb2.GenerationFinished) -> str | int | None:
    """Return the stop string or the stop token that has ended an answer, if one has."""
    kind = message.WhichOneof("stop")
    return getattr(message, kind) if kind else None


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
        num_reasoning_tokens=message.num_reasoning_tokens,
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
