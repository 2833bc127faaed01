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

from dataclasses import dataclass
from typing import Final

from specmesh.decoding.closed_forms import expected_tokens
from specmesh.decoding.platt import OnlinePlatt, Platt
from specmesh.decoding.predictors import PRIOR_ALPHA, Outcome

DEFAULT_LOOKAHEAD: Final = 4
"""As long as no latency was measured."""
MAX_LOOKAHEAD: Final = 64
"""However sure the drafter is."""
_PRIOR_ROUNDS: Final = 4.0
"""How many rounds of ``DEFAULT_LOOKAHEAD`` at ``PRIOR_ALPHA`` count as seen beforehand."""


@dataclass(frozen=True, slots=True)
class DraftStop:
    """End a draft after the level whose every node is expected to stand, with all before it,
    with a probability below ``below``, in [0, 1].

    ``acceptance`` says how likely a token is accepted that the drafter gave a probability.
    """

    below: float
    acceptance: Platt


class AdaptiveLookahead:
    """Learns from round to round how far drafting pays; it decides speed alone, never a token."""

    def __init__(self) -> None:
        self.limit = DEFAULT_LOOKAHEAD
        """Tokens of a draft at most. It grows as whole drafts are accepted: a drafter that is
        sure of everything is not followed far before its word has been tested."""
        self._acceptance = OnlinePlatt()
        self._num_rounds = _PRIOR_ROUNDS
        self._num_drafted = _PRIOR_ROUNDS * DEFAULT_LOOKAHEAD
        self._num_tokens = _PRIOR_ROUNDS * expected_tokens(PRIOR_ALPHA, DEFAULT_LOOKAHEAD)
        self._num_tried = _PRIOR_ROUNDS
        self._num_accepted = _PRIOR_ROUNDS * PRIOR_ALPHA

    def stop(self, target_s: float, drafter_s: float, target_token_s: float = 0.0) -> DraftStop:
        """Where to stop, if a verification and a drafted token take these seconds, and the
        verification ``target_token_s`` more for each token more in it."""
        seconds = self._num_rounds * target_s + self._num_drafted * drafter_s
        tokens_per_s = self._num_tokens / seconds if seconds else 0.0
        alpha = self._num_accepted / self._num_tried
        token_s = drafter_s + target_token_s
        return DraftStop(min(1.0, tokens_per_s * token_s / alpha), self._acceptance.latest)

    def observe(self, outcome: Outcome) -> None:
        """Learn from a round that was verified."""
        self._acceptance.learn(outcome.confidences, outcome.trials)
        self._num_rounds += 1
        self._num_drafted += outcome.num_drafted
        self._num_tokens += outcome.num_accepted + 1
        self._num_tried += len(outcome.trials)
        self._num_accepted += outcome.num_accepted
        if outcome.num_accepted >= self.limit:
            self.limit = min(2 * self.limit, MAX_LOOKAHEAD)
