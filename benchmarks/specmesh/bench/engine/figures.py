"""Throughput and latencies, computed from the times of tokens."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

import numpy as np


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """The tokens of one answer, with the times of the request and of each token, in seconds."""

    token_ids: tuple[int, ...]
    asked_s: float
    token_s: tuple[float, ...]


Turn = list[TimedAnswer]
"""The answers of one program before the other's turn; a round consists of turns."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The total throughput, time to first token, and time between two tokens."""

    tokens_per_s: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> Figures:
        """Compute the figures of a round, whose answers have at least two tokens."""
        answers = list(chain.from_iterable(turns))
        ttft_s = [answer.token_s[0] - answer.asked_s for answer in answers]
        itl_s = np.concatenate([np.diff(answer.token_s) for answer in answers])
        return cls(
            sum(len(answer.token_ids) for answer in answers) / sum(map(wall_s, turns)),
            *(np.percentile(ttft_s, (50, 99)) * 1e3).tolist(),
            *(np.percentile(itl_s, (50, 99)) * 1e3).tolist(),
        )


def wall_s(turn: Turn) -> float:
    """Return the seconds from the first request to the last token."""
    return max(each.token_s[-1] for each in turn) - min(each.asked_s for each in turn)


def speedup(ours: Iterable[Turn], theirs: Iterable[Turn]) -> float:
    """Return how many times as fast ``ours`` is as ``theirs``, as the median over pairs of turns,
    which have equal numbers of tokens."""
    pairs = zip(ours, theirs, strict=True)
    return median(wall_s(other) / wall_s(own) for own, other in pairs)


def peak_memory_mb() -> float:
    """Return the peak memory of this process, in 10^6 bytes."""
    kilobytes = sys.platform != "darwin"
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if kilobytes else 1) / 1e6
