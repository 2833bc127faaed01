"""The time of a forward by its size, whether fitted to a mesh, drawn from a trace, or given."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Self

from specmesh.decoding.errors import InvalidField

CONTEXT_UNIT: Final = 1000.0
"""Unit of context, in tokens, so that coefficients have similar magnitudes."""


@dataclass(frozen=True, slots=True, order=True)
class ForwardShape:
    """The shape of a forward: its number of calls, their total tokens, and the tokens that each
    call attends to. As means these may be fractions."""

    calls: float = 1.0
    tokens: float = 1.0
    context: float = 0.0


@dataclass(frozen=True, slots=True)
class Law:
    """The time of a forward in milliseconds. It has the time of one call without context at each of
    ``knots``, which rise; of a further call; of 1,000 tokens of context, by call and by token; what
    a draft takes besides its forwards; and what the first forward takes in addition that reads a
    request's prompt."""

    knots: tuple[float, ...]
    at_knots: tuple[float, ...]
    call_ms: float = 0.0
    call_context_ms: float = 0.0
    token_context_ms: float = 0.0
    start_ms: float = 0.0
    prompt_ms: float = 0.0
    rest: tuple[tuple[float, float], ...] = ()
    """The unexplained part, which is drawn: pairs of a quantile and the milliseconds below it."""

    def __post_init__(self) -> None:
        """Raise ``InvalidField`` if the line has no points, or not one at each knot."""
        if not self.knots or not all(low < high for low, high in pairwise(self.knots)):
            raise InvalidField("knots", "must be one or more numbers of tokens that rise")
        if len(self.at_knots) != len(self.knots):
            raise InvalidField("at_knots", "must have a time for each of the knots")

    @classmethod
    def fixed(cls, each_ms: float, token_ms: float = 0.0, first_ms: float | None = None) -> Self:
        """Return a law of ``each_ms`` and ``token_ms`` for each token after the first.

        The first forward of a request takes ``first_ms`` instead of ``each_ms``; None means the
        same (time to first token and time per output token in DSI, Appendix F.1).
        """
        prompt_ms = 0.0 if first_ms is None else first_ms - each_ms
        if not token_ms:
            return cls((1.0,), (each_ms,), prompt_ms=prompt_ms)
        return cls((1.0, 2.0), (each_ms, each_ms + token_ms), prompt_ms=prompt_ms)

    @classmethod
    def drawn(cls, counts: Mapping[float, float]) -> Self:
        """Return a law of times that are drawn from a histogram: the count (any weight) of each
        time in milliseconds. Raises ValueError."""
        if not counts or min(counts) < 0 or min(counts.values()) < 0 or not any(counts.values()):
            raise ValueError(
                "a histogram requires non-negative latencies and a positive total weight"
            )
        return cls((1.0,), (0.0,), rest=quantiles(counts))

    def ms(self, size: ForwardShape, quantile: float = 0.5) -> float:
        """Return the time of a forward, which is never negative; ``quantile`` in [0, 1) picks what
        is drawn."""
        upper, share = place(self.knots, size.tokens)
        line_ms = self.at_knots[upper]
        if share != 1:
            line_ms = (1 - share) * self.at_knots[upper - 1] + share * line_ms
        if share > 1:  # A line that falls does not go on to fall.
            line_ms = max(line_ms, self.at_knots[upper])
        context = size.context / CONTEXT_UNIT
        context_ms = self.call_context_ms * size.calls + self.token_context_ms * size.tokens
        total_ms = line_ms + self.call_ms * (size.calls - 1) + context_ms * context
        if self.rest:
            total_ms += self.rest[bisect_right(self.rest, (quantile, math.inf))][1]
        return max(0.0, total_ms)

    def total_ms(self, sizes: Sequence[ForwardShape]) -> float:
        """Return the time of forwards of all ``sizes`` as one draft."""
        return self.start_ms + sum(map(self.ms, sizes))


def place(knots: Sequence[float], tokens: float) -> tuple[int, float]:
    """Return the number of the knot above ``tokens``, and its share in the time there; the knot
    before it has the rest. Beyond the knots the line is extrapolated."""
    if len(knots) == 1:
        return 0, 1.0
    upper = min(max(bisect_left(knots, tokens), 1), len(knots) - 1)
    low, high = knots[upper - 1], knots[upper]
    return upper, max(0.0, (tokens - low) / (high - low))


def quantiles(counts: Mapping[float, float]) -> tuple[tuple[float, float], ...]:
    """Return the quantiles of a histogram, as in ``Law.rest``."""
    values = sorted(counts)
    below = list(accumulate(counts[value] for value in values))
    return tuple((each / below[-1], value) for each, value in zip(below, values, strict=True))
