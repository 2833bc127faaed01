"""The end of running answers, estimated from their tokens before any has ended.

No clock: times are passed in, in seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from statistics import fmean, median_low
from typing import NamedTuple

HALF_LIFE_SECONDS = 5.0
"""Time after which what was measured counts half."""
KNOWN_TOKENS = 4
KNOWN_SECONDS = 2.0
"""The pace is known once running answers have this many tokens each on average, or have run for
this long, with or without tokens."""
KEPT_SECONDS = 0.02
"""Time for which the order of the ends is kept while the same answers run: to find that of a
thousand takes as long as to refuse dozens of requests, which come in crowds."""
NUM_ENDED = 32
"""Number of the latest answers that ended whose lengths count."""
USUAL_TOKENS = 256
"""Tokens that an answer is taken to have before any has ended, if its limit allows: about as many
as in published conversations and traces (211 in Azure's; Patel et al., "Splitwise", ISCA 2024). A
limit says little, since few answers reach it; often it is what the context has room for."""


@dataclass(slots=True)
class RunningAnswer:
    """An answer that runs. ``limit`` is the most tokens that it may get, None until it is known."""

    limit: int | None = None
    num_tokens: int = 0


class _Outlook(NamedTuple):
    """The tokens that running answers were expected to get at the time ``at``."""

    at: float
    left: list[float]
    """The tokens that each of them lacked, in ascending order."""
    length: float
    """The tokens that they have at their ends, on average."""


class AnswerPace:
    """The tokens that each running answer gets per second, and how many each will have.

    An answer is taken to have as large a share of its limit as recent ones had. A limit that is not
    known yet is taken to be the mean of theirs. Before any has ended, an answer is taken to have
    ``USUAL_TOKENS``, or twice the tokens that most have already, and at most its limit.
    """

    def __init__(self) -> None:
        self._running: dict[int, RunningAnswer] = {}
        self._limits: deque[int] = deque(maxlen=NUM_ENDED)
        self._shares: deque[float] = deque(maxlen=NUM_ENDED)
        """The part of its limit that each of these answers had."""
        self._tokens = 0.0
        self._answer_s = 0.0
        """The time that answers have run, summed over them."""
        self._at = 0.0
        self._kept: _Outlook | None = None

    @property
    def num_running(self) -> int:
        """Answers that run."""
        return len(self._running)

    def began(self, now: float) -> RunningAnswer:
        """Count an answer that begins."""
        self._pass(now)
        answer = RunningAnswer()
        self._running[id(answer)] = answer
        self._kept = None
        return answer

    def progressed(self, answer: RunningAnswer, num_tokens: int, now: float) -> None:
        """Record that ``answer`` got ``num_tokens``."""
        self._pass(now)
        self._tokens += num_tokens
        answer.num_tokens += num_tokens

    def ended(self, answer: RunningAnswer, now: float) -> None:
        """Count an answer that has ended."""
        self._pass(now)
        del self._running[id(answer)]
        self._kept = None
        if answer.limit and answer.num_tokens:
            self._limits.append(answer.limit)
            self._shares.append(answer.num_tokens / answer.limit)

    def answer_s(self, now: float) -> float | None:
        """Return the mean time of an answer; None until the pace is known."""
        token_s, outlook = self._token_s(now), self._outlook(now)
        return None if outlook is None or token_s is None else outlook.length * token_s

    def until_ended_s(self, number: int, now: float) -> float | None:
        """Return the time until ``number`` answers, at least one, have ended, if as many run
        meanwhile as do now; None until the pace is known."""
        token_s, outlook = self._token_s(now), self._outlook(now)
        if outlook is None or token_s is None:
            return None
        num_rounds, index = divmod(number - 1, len(outlook.left))
        return (outlook.left[index] + num_rounds * outlook.length) * token_s

    def _outlook(self, now: float) -> _Outlook | None:
        """Return what the running answers are expected to get; None if none runs."""
        if self._kept is not None and now - self._kept.at < KEPT_SECONDS:
            return self._kept
        self._kept = None
        if self._running:
            lengths = self._lengths()
            left = sorted(
                max(1.0, length - each.num_tokens)  # one that runs has at least a token to come
                for length, each in zip(lengths, self._running.values(), strict=True)
            )
            self._kept = _Outlook(now, left, fmean(lengths))
        return self._kept

    def _lengths(self) -> list[float]:
        """Return the tokens that each running answer, at least one, will have."""
        limits = [each.limit for each in self._running.values()]
        # Rather by those that ended: of those that run, long ones are more than their part.
        if self._limits:
            usual, share = fmean(self._limits), fmean(self._shares)
            return [share * (usual if limit is None else limit) for limit in limits]
        # The median, since one that has run for long says nothing of a crowd that has just come.
        so_far = median_low(each.num_tokens for each in self._running.values())
        length = max(USUAL_TOKENS, 2 * so_far)
        return [length if limit is None else min(limit, length) for limit in limits]

    def _token_s(self, now: float) -> float | None:
        """Return the time in which an answer gets one token; None until it is known."""
        self._pass(now)
        num_running = len(self._running)
        if self._tokens < KNOWN_TOKENS * num_running and (
            self._answer_s < KNOWN_SECONDS * num_running
        ):
            return None
        return self._answer_s / self._tokens if self._tokens else inf

    def _pass(self, now: float) -> None:
        seconds, self._at = now - self._at, now
        kept = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        self._tokens *= kept
        self._answer_s = self._answer_s * kept + len(self._running) * seconds
