"""Predictors of how many tokens of a draft are accepted: a probability for each number.

Branch prediction (Duan et al. 2024) continues drafting from the position where it expects the
target's own token, while the target still verifies. A predictor learns from one answer; it affects
only speed, never a token.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.noise import Purpose, uniforms
from specmesh.decoding.predict.acceptance_rate import PRIOR_ALPHA
from specmesh.decoding.predict.phi import Phi
from specmesh.decoding.predict.platt import OnlinePlatt


@dataclass(frozen=True, slots=True)
class DraftOutcome:
    """The outcome of verifying a draft.

    ``confidences`` are those of the drafter in its tokens, in order (see ``confidence`` in
    ``decoding/drafting.py``). Raises ``ValueError`` if more tokens were accepted than drafted.
    """

    num_accepted: int
    confidences: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.num_accepted <= self.num_drafted:
            raise ValueError(f"{self.num_accepted} of {self.num_drafted} tokens accepted")

    @property
    def num_drafted(self) -> int:
        """The number of draft tokens."""
        return len(self.confidences)

    @property
    def trials(self) -> tuple[bool, ...]:
        """For each tried token, True if it was accepted; tokens after a rejection are not tried."""
        rejection = (False,) if self.num_accepted < self.num_drafted else ()
        return (True,) * self.num_accepted + rejection


class Predictor(Protocol):
    """A predictor that learns from round to round how many draft tokens are accepted."""

    def distribution(self, confidences: Sequence[float], round_number: int) -> NDArray[np.float64]:
        """Return P(k tokens accepted) for k = 0..n, ``[n + 1]``, for a draft of n =
        len(confidences).

        ``confidences`` are as in ``DraftOutcome``; ``round_number`` keys the noise of predictors
        that draw at random.
        """

    def observe(self, outcome: DraftOutcome) -> None:
        """Learn from a round that was verified."""


class AlwaysAll:
    """A static predictor that every token is accepted."""

    def distribution(self, confidences: Sequence[float], round_number: int) -> NDArray[np.float64]:  # noqa: ARG002
        """Return a distribution with all mass at n."""
        return _certain(len(confidences), len(confidences))

    def observe(self, outcome: DraftOutcome) -> None:
        """Learn nothing."""


class AlwaysNone:
    """A static predictor that the first token is rejected."""

    def distribution(self, confidences: Sequence[float], round_number: int) -> NDArray[np.float64]:  # noqa: ARG002
        """Return a distribution with all mass at 0."""
        return _certain(0, len(confidences))

    def observe(self, outcome: DraftOutcome) -> None:
        """Learn nothing."""


class FittedPhi:
    """The paper's prediction function (Eq. 12), fitted to the rounds of this answer.

    The paper fits it once, beforehand. Here it starts from independent acceptance at
    ``PRIOR_ALPHA``, which weighs as much as ``_PRIOR_ROUNDS`` rounds, and is fitted for the length
    of each draft; drafts of other lengths count with the tokens tried in them (Kaplan and Meier
    1958).
    """

    _PRIOR_ROUNDS: Final = 4.0

    def __init__(self) -> None:
        self._tried: list[float] = []
        self._accepted: list[float] = []

    def distribution(self, confidences: Sequence[float], round_number: int) -> NDArray[np.float64]:  # noqa: ARG002
        """Return phi at 0..n; it ignores the confidences."""
        n = len(confidences)
        if not n:
            return _certain(0, 0)
        self._reach(n)
        observed = accepted_counts(
            [self._accepted[index] / self._tried[index] for index in range(n)]
        )
        return Phi.fit(observed, refinements=0).probabilities(n)

    def observe(self, outcome: DraftOutcome) -> None:
        """Count the tokens that were tried, by their index in the draft."""
        self._reach(outcome.num_drafted)
        for index, accepted in enumerate(outcome.trials):
            self._tried[index] += 1
            self._accepted[index] += accepted

    def _reach(self, length: int) -> None:
        for index in range(len(self._tried), length):
            self._tried.append(self._PRIOR_ROUNDS * PRIOR_ALPHA**index)
            self._accepted.append(self._PRIOR_ROUNDS * PRIOR_ALPHA ** (index + 1))


class SampledPhi:
    """The paper's prediction: the number of accepted tokens is drawn from phi (Section 4.2).

    It is correct less often than phi's likeliest number would be. ``seed``, any uint64, keeps the
    noise of one answer apart from that of the next.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._phi = FittedPhi()

    def distribution(self, confidences: Sequence[float], round_number: int) -> NDArray[np.float64]:
        """Return a distribution with all mass at the drawn number, which is the same for every call
        in a round."""
        law = self._phi.distribution(confidences, round_number)
        noise = uniforms(self._seed, round_number, Purpose.PREDICT, np.zeros(1, np.int64))
        # The sum may end a rounding error below the noise.
        drawn = min(bisect(list(accumulate(law.tolist())), noise[0]), len(confidences))
        return _certain(drawn, len(confidences))

    def observe(self, outcome: DraftOutcome) -> None:
        """Fit phi to the round as well."""
        self._phi.observe(outcome)


class OutcomeHistory:
    """A predictor by what followed earlier pairs of rounds that ended as the latest two did.

    After the two-level adaptive branch predictor of Yeh and Patt 1991, in the form with one
    register and one table for all branches (GAg in their 1992 paper). The first level, the history
    register, holds how the last two rounds ended: each with none, some or all of its tokens
    accepted. The second level, the pattern history table, holds for each of the nine histories the
    acceptance of first and of later tokens. The paper's saturating counters predict one bit; a
    probability is needed here, so decaying counts replace them. A history with few rounds borrows
    from the acceptance after all histories.
    """

    _OUTCOMES: Final = 3
    _NONE, _SOME, _ALL = range(_OUTCOMES)

    def __init__(self) -> None:
        self._register = self._OUTCOMES**2 - 1  # as if all had been accepted, twice
        self._table = [_Acceptance() for _ in range(self._OUTCOMES**2)]
        self._after_any = _Acceptance()

    def distribution(self, confidences: Sequence[float], round_number: int) -> NDArray[np.float64]:  # noqa: ARG002
        """Return the distribution with the first token and later tokens accepted at their rates
        after this history."""
        prior = self._after_any.rates((PRIOR_ALPHA, PRIOR_ALPHA))
        first, later = self._table[self._register].rates(prior)
        return np.array(
            accepted_counts([first, *[later] * (len(confidences) - 1)][: len(confidences)])
        )

    def observe(self, outcome: DraftOutcome) -> None:
        """Count the round under the history before it, then shift it into the register."""
        if not outcome.num_drafted:
            return
        self._table[self._register].count(outcome)
        self._after_any.count(outcome)
        if outcome.num_accepted == outcome.num_drafted:
            latest = self._ALL
        else:
            latest = self._SOME if outcome.num_accepted else self._NONE
        self._register = (self._register * self._OUTCOMES + latest) % len(self._table)


class _Acceptance:
    """Decaying counts of tokens tried and accepted, separate for first and later tokens of
    drafts."""

    _DECAY: Final = 0.95
    _PRIOR_TOKENS: Final = 2.0

    def __init__(self) -> None:
        self._tried = [0.0, 0.0]
        self._accepted = [0.0, 0.0]

    def rates(self, prior: tuple[float, float]) -> tuple[float, float]:
        """Return the acceptance rates of first and of later tokens, shrunk towards the ``prior``
        rates."""
        weight = self._PRIOR_TOKENS
        first, later = (
            (accepted + weight * rate) / (tried + weight)
            for accepted, tried, rate in zip(self._accepted, self._tried, prior, strict=True)
        )
        return first, later

    def count(self, outcome: DraftOutcome) -> None:
        """Decay the counts, and add a round of at least one token."""
        first, *later = outcome.trials
        for which, trials in enumerate(([first], later)):
            self._tried[which] = self._tried[which] * self._DECAY + len(trials)
            self._accepted[which] = self._accepted[which] * self._DECAY + sum(trials)


class DrafterConfidence:
    """A predictor from the drafter's confidences, calibrated by ``OnlinePlatt``."""

    def __init__(self) -> None:
        self._acceptance = OnlinePlatt()

    def distribution(self, confidences: Sequence[float], round_number: int) -> NDArray[np.float64]:  # noqa: ARG002
        """Return the distribution with each token accepted with its calibrated confidence."""
        return np.array(accepted_counts([self._acceptance.latest(each) for each in confidences]))

    def observe(self, outcome: DraftOutcome) -> None:
        """Calibrate with each token that was tried."""
        self._acceptance.learn(outcome.confidences, outcome.trials)


def accepted_counts(rates: Sequence[float]) -> list[float]:
    """Return P(k accepted), ``[n + 1]``, if token i is accepted at ``rates[i]`` once it is
    reached."""
    law = []
    reached = 1.0
    for rate in rates:
        law.append(reached * (1 - rate))
        reached *= rate
    law.append(reached)
    return law


def _certain(num_accepted: int, num_drafted: int) -> NDArray[np.float64]:
    law = np.zeros(num_drafted + 1)
    law[num_accepted] = 1
    return law


PREDICTORS: Final[Mapping[str, Callable[[int], Predictor]]] = {
    "always-all": lambda _: AlwaysAll(),
    "always-none": lambda _: AlwaysNone(),
    "phi": lambda _: FittedPhi(),
    "phi-sampled": SampledPhi,
    "history": lambda _: OutcomeHistory(),
    "confidence": lambda _: DrafterConfidence(),
}
"""The predictors by their names in settings; each call creates one, for the answer with that
seed."""
