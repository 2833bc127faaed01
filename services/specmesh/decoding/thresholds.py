"""Where the line runs between draft tokens that are kept and those the target is asked about.

CALID (Hua et al.) calls its threshold adaptive and implements a constant. The other rules say
how many tokens are to be escalated and put the threshold where the scores seen lately make
it so. These are the scores of all sessions, so that under such a rule what a request gets
depends on what others ask for; a constant is the rule for answers that can be repeated.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from typing import Final

from specmesh.decoding.confidence import CALIBRATED, SCORERS
from specmesh.decoding.errors import InvalidField

WINDOW: Final = 2048
"""How many scores count as lately: enough to hold a share within about a hundredth, and
forgotten within seconds under load."""
ENOUGH: Final = 64
"""How many scores it takes before a share of them says anything."""


@dataclass(frozen=True, slots=True)
class Constant:
    """At ``threshold``, as in the paper. Minus infinity keeps all, infinity nothing.

    Raises ``InvalidField`` for NaN.
    """

    threshold: float

    def __post_init__(self) -> None:
        if math.isnan(self.threshold):
            raise InvalidField("threshold", "must be a number")


@dataclass(frozen=True, slots=True)
class EscalationRate:
    """Where this ``share`` of the tokens is escalated, in [0, 1]: 0 keeps all, 1 nothing.

    Raises ``InvalidField`` for a share outside.
    """

    share: float

    def __post_init__(self) -> None:
        _check_share("share", self.share)


@dataclass(frozen=True, slots=True)
class FollowLoad:
    """Where a share is escalated that falls from ``highest``, while the target's replicas idle,
    to ``lowest``, when calls wait there as long as they take or longer.

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
        """The share at a ``load``, 0 for idle and 1 for busy; beyond, as at the ends."""
        busy = min(1.0, max(0.0, load))
        share = busy * self.lowest + (1 - busy) * self.highest
        return min(self.highest, max(self.lowest, share))


Rule = Constant | EscalationRate | FollowLoad


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """What a request says of the filter; None leaves it to the service.

    Raises ``InvalidField`` for a scorer of no known name.
    """

    scorer: str | None = None
    rule: Rule | None = None

    def __post_init__(self) -> None:
        names = (*SCORERS, CALIBRATED)
        if self.scorer is not None and self.scorer not in names:
            raise InvalidField("scorer", f"must be one of {', '.join(names)}")


class RecentScores:
    """The last ``WINDOW`` scores that one scorer gave.

    Adding one takes a binary search, and moves a few kilobytes.
    """

    def __init__(self) -> None:
        self._by_age: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, score: float) -> None:
        """Take in a score; the oldest goes if there are too many. Raises ``ValueError`` for NaN."""
        if math.isnan(score):
            raise ValueError("a score must be a number")
        if len(self._by_age) == WINDOW:
            del self._sorted[bisect_left(self._sorted, self._by_age.popleft())]
        self._by_age.append(score)
        insort(self._sorted, score)

    def threshold(self, rule: Rule, load: float) -> float:
        """What a score must be above for its token to be kept, at that ``load`` of the target.

        A rule that asks for a share escalates everything until ``ENOUGH`` scores were seen,
        unless the share is 0. Equal scores share one fate, so that more may be escalated than
        was asked for, but not fewer.
        """
        match rule:
            case Constant(threshold):
                return threshold
            case EscalationRate(share):
                return self._lowest(share)
            case FollowLoad():
                return self._lowest(rule.share(load))

    def _lowest(self, share: float) -> float:
        """The highest of the lowest ``share`` of the scores.

        Counted so that the next score, if it comes from where these did, is not above it with
        at least that probability: the k-th lowest of n has k / (n + 1).
        """
        if share == 0:
            return -math.inf
        size = len(self._sorted)
        count = math.ceil(share * (size + 1))
        return self._sorted[count - 1] if size >= ENOUGH and count <= size else math.inf


def _check_share(field: str, share: float) -> None:
    if not 0 <= share <= 1:
        raise InvalidField(field, "must be in [0, 1]")
