"""How long to draft: as long as one more draft token is worth its time.

A round of speculative decoding is a renewal: it takes some time, yields some tokens, and then all
begins anew. By the renewal reward theorem the tokens per second of a policy are its mean tokens
over its mean time, and a policy is optimal for the rate R exactly if no round can gain on it at the
price of R tokens a second (Dinkelbach 1967). If all of a draft is accepted with probability P, one
more token, itself accepted with probability a if it is tried, yields P * a tokens and takes a time
t, which costs R * t. P only ever falls, so once a token doesn't pay none after it does (the
monotone case of Chow and Robbins 1961): stop as soon as P < R * t / a.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from specmesh.decoding.predict.acceptance_rate import PRIOR_ALPHA, AcceptanceRate, Exploration
from specmesh.decoding.predict.closed_forms import expected_tokens
from specmesh.decoding.predict.platt import OnlinePlatt, Platt
from specmesh.decoding.predict.predictors import DraftOutcome

DEFAULT_LOOKAHEAD: Final = 4
"""Used until latencies have been measured."""
MAX_LOOKAHEAD: Final = 64
"""The longest draft, however confident the drafter is."""
_PRIOR_ROUNDS: Final = 4.0
"""How many rounds of ``DEFAULT_LOOKAHEAD`` draft tokens at ``PRIOR_ALPHA`` are assumed at first."""
_DECAY: Final = 0.98
"""The factor on a round's weight for each later round."""


@dataclass(frozen=True, slots=True)
class DraftStop:
    """When to end a draft early: after the first level where every node has a probability less than
    ``below``, in [0, 1], of being accepted along with all nodes before it; of a tree that grows by
    worth (``decoding/trees/growth.py``), where these add up to less.

    ``acceptance`` maps the drafter's confidence in a token to the probability that the token is
    accepted.
    """

    below: float
    acceptance: Platt


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """The draft of one round: at most ``depth`` tokens, 0 for none, ended early by ``stop``."""

    depth: int
    stop: DraftStop | None = None


class AdaptiveLookahead:
    """Learns from round to round how long to draft; it affects speed alone, never a token.

    Drafting pays at all if alpha > c, the time of a draft token over that of a verification
    (Leviathan et al. 2023, Corollary 3.9). Otherwise the target works alone, but for what
    ``Exploration`` allows. Invariant: no plan is longer than ``_limit``, which doubles only when
    that many draft tokens were accepted in one round, so a drafter that is sure of everything is
    not followed far before its confidences have been tested.
    """

    def __init__(self) -> None:
        self._limit = DEFAULT_LOOKAHEAD
        self._calibration = OnlinePlatt()
        self._acceptance = AcceptanceRate()
        self._exploration = Exploration()
        self._exploring = False
        self._num_rounds = _PRIOR_ROUNDS
        self._num_drafted = _PRIOR_ROUNDS * DEFAULT_LOOKAHEAD
        self._num_tokens = _PRIOR_ROUNDS * expected_tokens(PRIOR_ALPHA, DEFAULT_LOOKAHEAD)

    def plan(
        self, target_s: float | None, drafter_s: float | None, target_token_s: float = 0.0
    ) -> DraftPlan:
        """The next round's draft, if a verification takes ``target_s`` seconds and a draft token
        ``drafter_s`` (None: not known yet), and each token in a verification makes it
        ``target_token_s`` seconds longer."""
        self._exploring = False
        if target_s is None or drafter_s is None:
            return DraftPlan(self._limit)
        token_s = drafter_s + target_token_s
        if self._acceptance.alpha * target_s <= token_s:
            cost = token_s / target_s if target_s else math.inf
            self._exploring = self._exploration.tries(cost)
            return DraftPlan(1 if self._exploring else 0)
        below = self._tokens_per_s(target_s, drafter_s) * token_s / self._acceptance.alpha
        return DraftPlan(self._limit, DraftStop(min(1.0, below), self._calibration.latest))

    def _tokens_per_s(self, target_s: float, drafter_s: float) -> float:
        """The rate of the rounds so far, or the target's alone, one token a verification, if
        higher."""
        seconds = self._num_rounds * target_s + self._num_drafted * drafter_s
        return max(self._num_tokens / seconds, 1 / target_s)

    def observe(self, outcome: DraftOutcome) -> None:
        """Learn from a round that was verified."""
        self._calibration.learn(outcome.confidences, outcome.trials)
        self._acceptance.learn(outcome.trials)
        if self._exploring and outcome.num_accepted:
            self._exploration.won()
        self._num_rounds = self._num_rounds * _DECAY + 1
        self._num_drafted = self._num_drafted * _DECAY + outcome.num_drafted
        self._num_tokens = self._num_tokens * _DECAY + outcome.num_accepted + 1
        if outcome.num_accepted >= self._limit:
            self._limit = min(2 * self._limit, MAX_LOOKAHEAD)
