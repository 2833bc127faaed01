"""The threshold between draft tokens that are kept and those that are escalated to the target.

CALID (Hua et al.) calls its threshold adaptive and implements a constant. The other rules say how
many tokens to escalate, and set the threshold for that from recent scores. These are the scores of
all sessions, so the answer to a request then depends on other requests; only a constant makes
answers reproducible.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from typing import Final

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.confidence import CALIBRATED, SCORERS

WINDOW: Final = 2048
"""The number of recent scores: enough to meet a share within about a hundredth, and replaced within
seconds under load."""
ENOUGH: Final = 64
"""The least number of scores for which a share of them is meaningful."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A fixed ``threshold``, as in the paper. Minus infinity keeps all tokens, infinity keeps none.

    Raises ``InvalidField`` for NaN.
    """

    threshold: float

    def __post_init__(self) -> None:
        if math.isnan(self.threshold):
            raise InvalidField("threshold", "must be a number")


@dataclass(frozen=True, slots=True)
class EscalationRate:
    """The threshold that escalates this ``share`` of the tokens, in [0, 1]: 0 keeps all, 1 none.

    Raises ``InvalidField`` for a share outside that range.
    """

    share: float

    def __post_init__(self) -> None:
        _check_share("share", self.share)


@dataclass(frozen=True, slots=True)
class FollowLoad:
    """The threshold that escalates a share which depends on the target's load: ``highest`` while
    its replicas are idle, falling to ``lowest`` when calls wait there at least as long as they
    take.

    Raises ``InvalidField`` unless 0 <= ``lowest`` <= ``highest`` <= 1.
    """

    lowest: float
    highest: float

    def __post_init__(self) -> None:
        _check_share("lowest", self.lowest)
        _check_share("highest", self.highest)
        if self.lowest > self.highest:
            raise InvalidField("lowest", "must not be above highest")

    def share(self, load: float) -> float:
        """Return the share at a ``load`` of 0 (idle) to 1 (busy); other loads are clamped."""
        busy = min(1.0, max(0.0, load))
        share = busy * self.lowest + (1 - busy) * self.highest
        return min(self.highest, max(self.lowest, share))


Rule = Constant | EscalationRate | FollowLoad


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """A request's options for the filter; None leaves the choice to the service.

    Raises ``InvalidField`` for an unknown scorer.
    """

    scorer: str | None = None
    rule: Rule | None = None

    def __post_init__(self) -> None:
        names = (*SCORERS, CALIBRATED)
        if self.scorer is not None and self.scorer not in names:
            raise InvalidField("scorer", f"must be one of {', '.join(names)}")


class RecentScores:
    """The last ``WINDOW`` scores of one scorer, held by age and sorted.

    Adding a score takes a binary search, and moves a few kilobytes.
    """

    def __init__(self) -> None:
        self._by_age: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, score: float) -> None:
        """Add a score; the oldest of a full window is dropped. Raises ``ValueError`` for NaN."""
        if math.isnan(score):
            raise ValueError("a score must be a number")
        if len(self._by_age) == WINDOW:
            del self._sorted[bisect_left(self._sorted, self._by_age.popleft())]
        self._by_age.append(score)
        insort(self._sorted, score)

    def threshold(self, rule: Rule, load: float) -> float:
        """Return the threshold at this ``load`` of the target: a token is kept if its score is
        above it.

        A rule for a share escalates everything until ``ENOUGH`` scores have been added, unless the
        share is 0. Equal scores are treated alike, so more tokens may be escalated than the rule
        says, but not fewer.
        """
        match rule:
            case Constant(threshold):
                return threshold
            case EscalationRate(share):
                return self._lowest(share)
            case FollowLoad():
                return self._lowest(rule.share(load))

    def _lowest(self, share: float) -> float:
        """Return the highest of the lowest ``share`` of the scores.

        The next score, if it is distributed as these are, is at or below the k-th lowest of n with
        a probability of at least k / (n + 1): k is the least for which that is ``share``.
        """
        if share == 0:
            return -math.inf
        size = len(self._sorted)
        count = math.ceil(share * (size + 1))
        return self._sorted[count - 1] if size >= ENOUGH and count <= size else math.inf


def _check_share(field: str, share: float) -> None:
    if not 0 <= share <= 1:
        raise InvalidField(field, "must be in [0, 1]")
