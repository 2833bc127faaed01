"""The recent acceptance rate of draft tokens, and the decision whether drafting pays at that
rate."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from specmesh.decoding.predict.measured_speeds import MeasuredSpeeds
from specmesh.decoding.predict.remembered import Remembered

DRAFTER: Final = "drafter"
"""The source of chains of the preferred drafter, and of trees that such chains fill."""
TREE_LEVELS: Final = "levels of trees"
"""The source of the drafter's trees, whose levels are tried."""
HEADS_CHAIN: Final = "chain of heads"
"""The source of the first choices of the target's heads."""
OTHER_OUTCOMES: Final = "other outcomes"
"""The source of drafts that begin where the drafter's first choice is wrong."""
HEADS_LEVELS: Final = "levels of heads"
"""The source of the trees of the target's heads, whose levels are tried."""
PRIOR_ALPHA: Final = 0.7
"""The acceptance rate assumed before any draft token has been tried."""
_PRIOR_TRIALS: Final = 4.0
_DECAY: Final = 0.97
"""The factor on a trial's weight for each later trial: text may change within thirty tokens."""
_MESH_DECAY: Final = 0.999
"""The same for the trials of all answers together."""
_ANSWER_DECAY: Final = 0.99
"""The same for an answer that chooses its strategy by its rates."""
_ASSUMED_TRIALS: Final = 16.0
"""The trials of all answers that count beside an answer's own: these are too few to tell a rate at
which drafting pays from one at which it does not."""
_CHOICE_TRIALS: Final = 32.0
"""The same for an answer that chooses its strategy, since a change has its price. Texts differ so
much that more would hide it; answers that share forwards choose by the rates of all instead."""
_OPTIMISTIC_TRIALS: Final = 2.0
"""Accepted trials that ``num_worth`` adds to those observed."""
_EXPLORED_SHARE: Final = 0.01
"""The share of the target's time that may go to drafts which are not expected to pay."""
_MEASURING: Final = 4
"""The answers that measure a mesh which has just started. If a whole crowd drafted then, its
forwards would be twice as large before it is known what that takes."""
_MOST_EXPLORED: Final = 4.0
"""The most that accepted drafts add up to, in verifications: a drafter that turns bad must not be
tried on what it has earned."""


class Exploration:
    """Allows a draft now and then although it is not expected to pay.

    Without it, an improvement of the drafter would go unnoticed, and a wrong estimate of what a
    token takes would stand. All answers share a budget, so that short ones explore too. Invariant:
    besides measuring a new mesh, exploring spends no more than the share ``_EXPLORED_SHARE`` of the
    target's time and the time it has saved, at most one verification for each exploratory token
    accepted. So it slows answers down by at most that share, and once the drafter is good, accepted
    tokens pay for the next tries.
    """

    def __init__(self) -> None:
        self._budget = 0.0
        """The budget, in verifications."""
        self._num_measuring = 0
        """The first answers that were to measure the mesh."""

    def tries(self, cost: float) -> bool:
        """Return whether to draft now, before or while the target verifies once.

        ``cost`` is the time of that draft in verifications; it is spent if the result is True.
        """
        self._budget += _EXPLORED_SHARE
        if self._budget < cost:
            return False
        self._budget -= cost
        return True

    def measures(self) -> bool:
        """Return whether an answer is to draft a token in each round from now on until it is known
        what that takes. The first few answers do, for all, and if they learn nothing, since no
        drafter answers, another one does from time to time. A single draft would not do: the first
        one of an answer reads its prompt, and so does not tell what a token takes."""
        if self._num_measuring < _MEASURING:
            self._num_measuring += 1
            return True
        return self.tries(1.0)

    def won(self, saved: float) -> None:
        """Credit the verifications that accepted exploratory draft tokens have ``saved``: one for
        each at most."""
        self._budget = min(_MOST_EXPLORED, self._budget + saved)


class AcceptanceRate:
    """An estimate of alpha, in which every later trial weights a trial down by ``decay``."""

    def __init__(self, decay: float = _DECAY) -> None:
        self._decay = decay
        self._accepted, self._tried = PRIOR_ALPHA * _PRIOR_TRIALS, _PRIOR_TRIALS
        self._num_tokens = _PRIOR_TRIALS
        self.exploration = Exploration()
        """The budget of all answers for drafts from this source that are not expected to pay."""

    @property
    def alpha(self) -> float:
        """The estimate, in [0, 1]."""
        return self._accepted / self._tried

    @property
    def width(self) -> float:
        """The mean number of tokens that were drafted for each trial: more than 1 in trees."""
        return self._num_tokens / self._tried

    @property
    def num_trials(self) -> float:
        """The weight of the trials, without those that are assumed."""
        return max(0.0, self._tried - _PRIOR_TRIALS)

    @property
    def common(self) -> AcceptanceRate:
        """The rate of all answers, which is this one."""
        return self

    def num_worth(self, cost: float) -> float:
        """Return the number of consecutive draft tokens that are all accepted with a probability of
        at least ``cost``.

        That many are worth verifying if each makes a verification longer by the fraction ``cost``:
        with probability alpha^n the n-th is accepted and saves a verification. Alpha is estimated
        optimistically, as if two more trials had been accepted: a draft that is too short delays
        this answer, one that is too long delays only others.
        """
        tried = max(self._tried, _PRIOR_TRIALS)
        alpha = (self.alpha * tried + _OPTIMISTIC_TRIALS) / (tried + _OPTIMISTIC_TRIALS)
        return math.inf if cost <= 0 or alpha >= 1 else math.log(min(cost, 1)) / math.log(alpha)

    def learn(self, trials: Iterable[bool], width: float = 1.0) -> None:
        """Record, in order, whether each tried token was accepted, or one of the ``width`` tokens
        that each level of a tree has on average."""
        for accepted in trials:
            self._accepted = self._accepted * self._decay + accepted
            self._tried = self._tried * self._decay + 1
            self._num_tokens = self._num_tokens * self._decay + width


class AnswersRate(AcceptanceRate):
    """The rate of an answer: near that of ``everyone``, who learns from its trials, until it has
    many of its own, so that chance does not change what it does."""

    def __init__(
        self,
        everyone: AcceptanceRate,
        decay: float = _DECAY,
        num_assumed: float = _ASSUMED_TRIALS,
    ) -> None:
        super().__init__(decay)
        self._everyone = everyone
        self.exploration = everyone.exploration
        self._num_assumed = num_assumed
        self._accepted = self._tried = self._num_tokens = 0.0

    @property
    def common(self) -> AcceptanceRate:
        """The rate of all answers."""
        return self._everyone.common

    @property
    def alpha(self) -> float:
        """The estimate, in [0, 1]."""
        assumed = self._everyone.alpha * self._num_assumed
        return (self._accepted + assumed) / (self._tried + self._num_assumed)

    @property
    def width(self) -> float:
        """The mean number of tokens that were drafted for each trial."""
        assumed = self._everyone.width * self._num_assumed
        return (self._num_tokens + assumed) / (self._tried + self._num_assumed)

    def learn(self, trials: Iterable[bool], width: float = 1.0) -> None:
        """Record the trials of this answer, also for everyone."""
        tried = list(trials)
        super().learn(tried, width)
        self._everyone.learn(tried, width)


class MeshAcceptance:
    """The acceptance rates of all answers of one strategy, by the source of their drafts.

    With ``everyone``, those of a single answer that may change its strategy: they begin with the
    rates of everyone, who learn from them.
    """

    def __init__(self, everyone: MeshAcceptance | None = None) -> None:
        self.exploration: Exploration = everyone.exploration if everyone else Exploration()
        """The budget of all answers for strategies that are not expected to pay."""
        self.speeds: MeasuredSpeeds = everyone.speeds if everyone else MeasuredSpeeds()
        """The speeds of the strategies that answers have chosen, of all answers together."""
        self.forecast: Remembered[Mapping[str, float]] = (
            everyone.forecast if everyone else Remembered()
        )
        """The speeds that the strategies are expected to yield, for answers that share forwards."""
        self.chosen: str | None = None
        """The strategy that an answer has chosen last, if they choose."""
        self._everyone = everyone
        self._rates: dict[Hashable, AcceptanceRate] = {}

    def rate(self, source: Hashable = DRAFTER) -> AcceptanceRate:
        """Return a new rate of drafts from ``source``, which begins with the one of all and from
        which that learns."""
        return AnswersRate(self._of_all(source))

    def alpha(self, source: Hashable) -> float:
        """Return the rate of all drafts from ``source``."""
        return self._of_all(source).alpha

    def num_trials(self, source: Hashable) -> float:
        """Return the number of drafts from ``source`` that everyone has tried, the latest ones
        counting most."""
        if self._everyone is not None:
            return self._everyone.num_trials(source)
        return self._of_all(source).num_trials

    def _of_all(self, source: Hashable) -> AcceptanceRate:
        if source not in self._rates:
            self._rates[source] = (
                AcceptanceRate(decay=_MESH_DECAY)
                if self._everyone is None
                else AnswersRate(self._everyone._of_all(source), _ANSWER_DECAY, _CHOICE_TRIALS)
            )
        return self._rates[source]
