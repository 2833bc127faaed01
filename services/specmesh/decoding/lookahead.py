"""When to stop drafting: one more draft token is worth it, or its time is.

A round of speculative decoding is a renewal: it takes a time and brings tokens, and then all
begins anew. By the renewal reward theorem the tokens per second of a policy are its mean
tokens over its mean time, and a policy is optimal for the rate R exactly if no round can gain
on it at the price of R tokens a second (Dinkelbach 1967). A draft whose tokens stand with
probability P brings P * a tokens by one token more, which is accepted with probability a if
it is tried, and costs R * t. P only ever falls, so that once it doesn't pay it never does
again (the monotone case of Chow and Robbins 1961): stop as soon as P < R * t / a.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from specmesh.decoding.acceptance_rate import PRIOR_ALPHA, AcceptanceRate, Exploration
from specmesh.decoding.closed_forms import expected_tokens
from specmesh.decoding.platt import OnlinePlatt, Platt
from specmesh.decoding.predictors import Outcome

DEFAULT_LOOKAHEAD: Final = 4
"""As long as no latency was measured."""
MAX_LOOKAHEAD: Final = 64
"""However sure the drafter is."""
_PRIOR_ROUNDS: Final = 4.0
"""How many rounds of ``DEFAULT_LOOKAHEAD`` at ``PRIOR_ALPHA`` count as seen beforehand."""
_DECAY: Final = 0.98
"""Of a round's weight with each round after it."""


@dataclass(frozen=True, slots=True)
class DraftStop:
    """End a draft after the level whose every node is expected to stand, with all before it,
    with a probability below ``below``, in [0, 1].

    ``acceptance`` says how likely a token is accepted that the drafter gave a probability.
    """

    below: float
    acceptance: Platt


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """A round's draft: at most ``depth`` tokens, 0 for none, and where it may end before that."""

    depth: int
    stop: DraftStop | None = None


class AdaptiveLookahead:
    """Learns from round to round how far drafting pays; it decides speed alone, never a token.

    Drafting pays at all if tokens are accepted more often than a drafted one takes of the time
    of a verification: alpha > c (Leviathan et al. 2023, Corollary 3.9). Else the target works
    alone, but for what ``Exploration`` allows.
    """

    def __init__(self) -> None:
        self._limit = DEFAULT_LOOKAHEAD
        # It grows as whole drafts are accepted: a drafter that is sure of everything is not
        # followed far before its word has been tested.
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
        """The next round's, if a verification and a drafted token take these seconds (None: not
        known yet), and a verification ``target_token_s`` more for each token more in it."""
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
        """Of the rounds so far; the target alone would reach one a verification."""
        seconds = self._num_rounds * target_s + self._num_drafted * drafter_s
        return max(self._num_tokens / seconds, 1 / target_s)

    def observe(self, outcome: Outcome) -> None:
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
