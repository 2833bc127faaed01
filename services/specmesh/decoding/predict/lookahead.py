"""The length of drafts: drafting continues as long as one more token is worth its time.

A round of speculative decoding is a renewal: it takes some time, yields some tokens, and then the
process starts afresh. By the renewal reward theorem the tokens per second of a policy are its mean
tokens over its mean time. A policy with rate R is optimal exactly if no round can gain by paying R
tokens per second of its time (Dinkelbach 1967). If all of a draft is accepted with probability P,
one more token, itself accepted with probability a if it is tried, yields P * a tokens and takes a
time t, which costs R * t. P only ever falls, so once a token doesn't pay none after it does (the
monotone case of Chow and Robbins 1961): stop as soon as P < R * t / a.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from specmesh.decoding.predict.acceptance_rate import PRIOR_ALPHA, AcceptanceRate
from specmesh.decoding.predict.closed_forms import expected_tokens
from specmesh.decoding.predict.platt import OnlinePlatt, Platt
from specmesh.decoding.predict.predictors import DraftOutcome
from specmesh.decoding.predict.round_costs import PAYS, RoundCosts

DEFAULT_LOOKAHEAD: Final = 4
"""The length of drafts until latencies have been measured."""
MAX_LOOKAHEAD: Final = 64
"""The longest draft, however confident the drafter is."""
_PRIOR_ROUNDS: Final = 4.0
"""The number of rounds of ``DEFAULT_LOOKAHEAD`` draft tokens at ``PRIOR_ALPHA`` assumed at
first."""
_DECAY: Final = 0.98
"""The factor on a round's weight for each later round."""


@dataclass(frozen=True, slots=True)
class DraftStop:
    """The rule that ends a draft early: after the first level on which every node has a probability
    less than ``below``, in [0, 1], of being accepted along with all nodes before it. A tree that
    grows by worth (``decoding/trees/growth.py``) ends after the first level on which these add up
    to less.

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


def trial_depth(costs: RoundCosts) -> int:
    """Return the depth of a draft that is not expected to pay: as many levels as take the time of a
    verification, of several tokens if possible. That of one token says little about the time of
    each further one: on a small CPU the first is the dearest."""
    limit = min(DEFAULT_LOOKAHEAD, costs.most_tokens)
    return max(1, int(min(limit, costs.alone_s / costs.level_s if costs.level_s else limit)))


class AdaptiveLookahead:
    """A controller that learns from round to round how long to draft; it affects only speed, never
    a token.

    Drafting pays at all if alpha > c, the time of a draft token over that of a verification
    (Leviathan et al. 2023, Corollary 3.9), here with all that a token costs (``RoundCosts``).
    Otherwise the target works alone, except for drafts that ``Exploration`` allows. Invariant: no
    plan is longer than ``_limit``, which doubles only when that many draft tokens were accepted in
    one round, so an overconfident drafter is not followed far before its confidences have been
    tested.
    """

    def __init__(self, acceptance: AcceptanceRate | None = None) -> None:
        self._limit = DEFAULT_LOOKAHEAD
        self._calibration = OnlinePlatt()
        self._acceptance = acceptance or AcceptanceRate()
        self._exploring = False
        self._measures = False
        """True if it drafts until costs are known."""
        self._num_rounds = _PRIOR_ROUNDS
        self._num_drafted = _PRIOR_ROUNDS * DEFAULT_LOOKAHEAD
        self._num_tokens = _PRIOR_ROUNDS * expected_tokens(PRIOR_ALPHA, DEFAULT_LOOKAHEAD)

    def plan(self, costs: RoundCosts | None) -> DraftPlan:
        """Plan the next round's draft. At most a single token if ``costs`` are None, that is not
        known yet: a crowd that meets a mesh that has just started must not fill its forwards.

        Answers that share the forwards of a replica (``costs.period_s``) decide alike whether to
        draft, by the rate of all: one that drafts while the others decode on is late for the next
        forward."""
        self._exploring = False
        if costs is None:
            self._measures = self._measures or self._acceptance.exploration.measures()
            return DraftPlan(int(self._measures))
        acceptance = self._acceptance.common if costs.period_s else self._acceptance
        depth = costs.best_depth(acceptance.alpha, self._limit, PAYS)
        if not depth:
            depth = trial_depth(costs)
            cost = costs.explored_s(depth) / costs.decoding_s if costs.alone_s else math.inf
            self._exploring = self._acceptance.exploration.tries(cost)
            return DraftPlan(depth if self._exploring else 0)
        below = self._tokens_per_s(costs) * costs.marginal_s(depth) / self._acceptance.alpha
        stop = DraftStop(min(1.0, below), self._calibration.latest)
        return DraftPlan(costs.deepest(depth, self._limit), stop)

    def _tokens_per_s(self, costs: RoundCosts) -> float:
        """Return the rate of the rounds so far, or that of the target alone, one token per
        verification, if that is higher."""
        seconds = self._num_rounds * costs.target_s + self._num_drafted * costs.level_s
        return max(self._num_tokens / seconds if seconds else 0.0, 1 / costs.decoding_s)

    def observe(self, outcome: DraftOutcome) -> None:
        """Learn from a round that was verified."""
        self._calibration.learn(outcome.confidences, outcome.trials)
        self._acceptance.learn(outcome.trials)
        if self._exploring:
            self._acceptance.exploration.won(outcome.num_accepted)
        self._num_rounds = self._num_rounds * _DECAY + 1
        self._num_drafted = self._num_drafted * _DECAY + outcome.num_drafted
        self._num_tokens = self._num_tokens * _DECAY + outcome.num_accepted + 1
        if outcome.num_accepted >= self._limit:
            self._limit = min(2 * self._limit, MAX_LOOKAHEAD)
