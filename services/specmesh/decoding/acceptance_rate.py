"""How often draft tokens are accepted of late, and whether drafting pays at that rate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

PRIOR_ALPHA: Final = 0.7
"""The acceptance rate that is taken for granted before anything was tried."""
_PRIOR_TRIALS: Final = 4.0
_DECAY: Final = 0.97
"""Of a trial's weight with each trial after it: a text may change within thirty tokens."""
_HOPED_FOR: Final = 2.0
_EXPLORED: Final = 0.02
"""The share of the target's time that drafts may cost which are not expected to pay."""


class AcceptanceRate:
    """Alpha, from the trials of one answer; those long ago count for little."""

    def __init__(self) -> None:
        self._accepted = PRIOR_ALPHA * _PRIOR_TRIALS
        self._tried = _PRIOR_TRIALS

    @property
    def alpha(self) -> float:
        """In [0, 1]."""
        return self._accepted / self._tried

    def num_worth(self, cost: float) -> float:
        """How many tokens in a row stand with a probability of at least ``cost``.

        So many are worth verifying if each makes a verification longer by that part of it:
        the n-th stands with probability alpha^n, and then saves a verification. Alpha is taken
        hopefully, as if two trials more had gone well: a draft that ends too soon is missed by
        the answer at hand, one that goes on too long only by others.
        """
        alpha = (self._accepted + _HOPED_FOR) / (self._tried + _HOPED_FOR)
        return math.inf if cost <= 0 or alpha >= 1 else math.log(min(cost, 1)) / math.log(alpha)

    def learn(self, trials: Iterable[bool]) -> None:
        """Whether each token that was tried was accepted, in order."""
        for accepted in trials:
            self._accepted = self._accepted * _DECAY + accepted
            self._tried = self._tried * _DECAY + 1


class Exploration:
    """Lets a draft be made now and then although it is not expected to pay.

    Without one nobody would see that the drafter does better again. A draft of one token costs
    a part of the target's time, and brings as much as one verification takes if it is accepted.
    So what exploring may spend is a share of the time (``_EXPLORED``) and all that it has won:
    it slows an answer down by no more than that share, and where the drafter has become good
    each accepted token pays for the next try.
    """

    def __init__(self) -> None:
        self._purse = 0.0
        """In verifications."""

    def tries(self, cost: float) -> bool:
        """Whether to draft one token now, before or while the target verifies once.

        ``cost`` is the time that takes, in verifications.
        """
        self._purse += _EXPLORED
        if self._purse < cost:
            return False
        self._purse -= cost
        return True

    def won(self) -> None:
        """A token that was drafted by way of trial was accepted."""
        self._purse += 1.0
