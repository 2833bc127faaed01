"""How often draft tokens were accepted recently, and whether drafting pays at that rate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

PRIOR_ALPHA: Final = 0.7
"""The acceptance rate assumed before any draft token has been tried."""
_PRIOR_TRIALS: Final = 4.0
_DECAY: Final = 0.97
"""The factor on a trial's weight for each later trial: text may change within thirty tokens."""
_OPTIMISTIC_TRIALS: Final = 2.0
"""Accepted trials that ``num_worth`` adds to those observed."""
_EXPLORED_SHARE: Final = 0.02
"""The share of the target's time that may go to drafts which are not expected to pay."""


class AcceptanceRate:
    """An estimate of alpha from the trials of one answer, each weighted down by every later one."""

    def __init__(self) -> None:
        self._accepted = PRIOR_ALPHA * _PRIOR_TRIALS
        self._tried = _PRIOR_TRIALS

    @property
    def alpha(self) -> float:
        """The estimate, in [0, 1]."""
        return self._accepted / self._tried

    def num_worth(self, cost: float) -> float:
        """How many draft tokens in a row are all accepted with a probability of at least ``cost``.

        So many are worth verifying if each makes a verification longer by the fraction ``cost``:
        the n-th is accepted, and then saves a verification, with probability alpha^n. Alpha is
        estimated optimistically, as if two more trials had been accepted: a draft that ends too
        soon delays this answer, one that goes on too long only others.
        """
        alpha = (self._accepted + _OPTIMISTIC_TRIALS) / (self._tried + _OPTIMISTIC_TRIALS)
        return math.inf if cost <= 0 or alpha >= 1 else math.log(min(cost, 1)) / math.log(alpha)

    def learn(self, trials: Iterable[bool]) -> None:
        """Take in, in order, whether each token that was tried was accepted."""
        for accepted in trials:
            self._accepted = self._accepted * _DECAY + accepted
            self._tried = self._tried * _DECAY + 1


class Exploration:
    """Allows a draft now and then although it is not expected to pay.

    Without one it would go unnoticed that the drafter has become better. Invariant: exploring
    spends no more than the share ``_EXPLORED_SHARE`` of the target's time and the time it has
    saved, one verification for each exploratory token accepted. So it slows an answer down by no
    more than that share, and once the drafter is good, each accepted token pays for the next try.
    """

    def __init__(self) -> None:
        self._budget = 0.0
        """In verifications."""

    def tries(self, cost: float) -> bool:
        """Whether to draft one token now, before or while the target verifies once.

        ``cost`` is the time that takes, in verifications; it is spent if the answer is yes.
        """
        self._budget += _EXPLORED_SHARE
        if self._budget < cost:
            return False
        self._budget -= cost
        return True

    def won(self) -> None:
        """Credit an exploratory draft token that was accepted."""
        self._budget += 1.0
