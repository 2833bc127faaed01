"""The generated tokens of one answer on their way from the driver to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specmesh.decoding.logprobs import Logprobs
from specmesh.orchestrator.driver.mailbox import Mailbox
from specmesh.orchestrator.parsing.answer_parser import AnswerParser
from specmesh.orchestrator.parsing.pieces import Piece, merged
from specmesh.orchestrator.replicas.calls.judged_logprobs import JudgedLogprobs
from specmesh.orchestrator.strategies.commands import Commit, StopReason, TokenKind
from specmesh.orchestrator.text.decoder import TextStream


@dataclass(frozen=True, slots=True)
class ToldLogprobs:
    """Log-probabilities at the position of a token, as sent to the client.

    ``text_bytes`` are the bytes that the token adds to the answer's text, and those that each of
    the likeliest tokens would add instead, by token id; ``text_offset`` counts the characters
    before them.
    """

    known: Logprobs
    text_bytes: Mapping[int, bytes]
    text_offset: int


@dataclass(frozen=True, slots=True)
class EmittedToken:
    """One committed token, its index among the generated ones, the text it completes, its origin,
    its log-probabilities if they are known, and what its text brings for the model's message if the
    answer is parsed; whether it begins, goes on with or ends reasoning."""

    index: int
    token_id: int
    text: str
    kind: TokenKind
    logprobs: ToldLogprobs | None
    pieces: Sequence[Piece] = ()
    is_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The end of an answer, with the text and the pieces of the message that were held back, and
    the stop string or the stop token that has ended it, if one has."""

    reason: StopReason
    text: str
    pieces: Sequence[Piece]
    stop_string: str | None = None
    stop_token_id: int | None = None


class Emission:
    """Emits every committed token once and in order, with its text, up to the end of a stop string.
    If ``logprobs`` is given, tokens that are not replayed have log-probabilities. If ``parser`` is
    given, it parses the text."""

    def __init__(
        self,
        text: TextStream,
        logprobs: JudgedLogprobs | None = None,
        parser: AnswerParser | None = None,
    ) -> None:
        self.num_taken = 0
        """Tokens that were taken, including those of earlier parts of the answer."""
        self.num_unchecked = 0
        """The taken tokens that the target did not check."""
        self.num_reasoning = 0
        """The taken tokens up to the last one of the reasoning."""
        self._num_tokens = 0
        self._last_token: int | None = None
        self._text = text
        self._logprobs = logprobs
        self._parser = parser
        self._outbox: Mailbox[EmittedToken] = Mailbox()

    def commit(self, commit: Commit) -> StopReason | None:
        """Emit the tokens up to one that completes a stop string, which ends the answer."""
        logprobs: Sequence[Logprobs | None] = [None] * len(commit.token_ids)
        if self._logprobs is not None:
            logprobs = self._logprobs.commit(commit.token_ids)
        for each in zip(commit.token_ids, commit.kinds, logprobs, strict=True):
            if reason := self._emit(*each):
                return reason
        return None

    def replay(self, token_id: int, *, checked: bool) -> StopReason | None:
        """Emit a token of an earlier part of the answer, as ``commit`` does."""
        return self._emit(token_id, TokenKind.UNKNOWN if checked else TokenKind.UNCHECKED, None)

    def _emit(self, token_id: int, kind: TokenKind, logprobs: Logprobs | None) -> StopReason | None:
        told = None if logprobs is None else self._told(token_id, logprobs)
        text = self._text.push(token_id)
        pieces, is_reasoning = self._parsed(text)
        self._outbox.put(
            EmittedToken(self._num_tokens, token_id, text, kind, told, pieces, is_reasoning)
        )
        self._num_tokens += 1
        self._last_token = token_id
        return StopReason.STOP if self._text.stopped else None

    def _parsed(self, text: str) -> tuple[Sequence[Piece], bool]:
        """Return what ``text`` brings, and whether reasoning is before or behind it."""
        if self._parser is None:
            return (), False
        was_reasoning = self._parser.is_reasoning
        pieces = self._parser.push(text)
        return pieces, was_reasoning or self._parser.is_reasoning

    def _told(self, token_id: int, logprobs: Logprobs) -> ToldLogprobs:
        """Return ``logprobs`` as sent for ``token_id``, which must be the next token."""
        likeliest = {token_id, *logprobs.top_token_ids}
        text_bytes = {each: self._text.bytes_of(each) for each in likeliest}
        offset = self._text.offset_of(text_bytes[token_id])
        return ToldLogprobs(logprobs, text_bytes, offset)

    async def wait(self, seconds: float) -> None:
        """Return when there are tokens to take, after ``wake``, or after ``seconds``."""
        await self._outbox.wait(asyncio.get_running_loop().time() + seconds)

    def wake(self) -> None:
        """End ``wait``, with or without tokens."""
        self._outbox.wake()

    def take(self) -> list[EmittedToken]:
        """Return the tokens emitted since the last call."""
        tokens = self._outbox.take_all()
        self.num_taken += len(tokens)
        self.num_unchecked += sum([token.kind is TokenKind.UNCHECKED for token in tokens])
        reasoning = [token for token in tokens if token.is_reasoning]
        if reasoning:
            self.num_reasoning = reasoning[-1].index + 1
        return tokens

    def end(self, reason: StopReason) -> AnswerEnd:
        """Return what was held back so far, and the reason why the answer ends, which is STOP if
        the text contains a stop string."""
        text = self._text.flush()
        pieces = [*self._parser.push(text), *self._parser.end()] if self._parser else []
        if (stop_string := self._text.stop_string) is not None:
            return AnswerEnd(StopReason.STOP, text, merged(pieces), stop_string)
        stop_token = self._last_token if reason is StopReason.STOP else None
        return AnswerEnd(reason, text, merged(pieces), stop_token_id=stop_token)
