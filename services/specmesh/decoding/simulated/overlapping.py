"""A simulated target and drafter that draw from distributions with a chosen overlap.

At every context, up to a renaming of tokens,

    p = alpha u + (1 - alpha) v,    q = alpha u + (1 - alpha) w

where u, v and w have no token in common. So Σ min(p, q) = alpha, the acceptance rate in rejection
mode (Leviathan et al. 2023, Theorem 3.5), and Σ p·q = alpha² Σ u², the chance that two independent
draws agree, which the peak of u sets independently of alpha.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.simulated.hashed import chained

_NUM_COMMON: Final = 32
_NUM_OWN: Final = 8
"""The number of tokens of v, and of w; both are uniform."""
VOCAB_SIZE: Final = _NUM_COMMON + 2 * _NUM_OWN
_RENAMING: Final = 1 << 43
"""A constant that equals no token id, see ``decoding/simulated/hashed.py``."""


@dataclass(frozen=True, slots=True)
class SimulatedPair:
    """A target p and a drafter q: ``alpha``, in [0, 1], is Σ min(p, q), and ``overlap``, in
    [alpha² / 32, alpha²], is Σ p·q. Wrong values raise ``InvalidField``."""

    alpha: float
    overlap: float

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InvalidField("alpha", "must be in [0, 1]")
        least, most = self.alpha**2 / _NUM_COMMON, self.alpha**2
        if not least <= self.overlap <= most:
            raise InvalidField("overlap", f"must be in [{least:.4g}, {most:.4g}]")

    def target_probabilities(self) -> NDArray[np.float64]:
        """Return p ``[VOCAB_SIZE]``, before tokens are renamed."""
        own = np.full(_NUM_OWN, (1 - self.alpha) / _NUM_OWN)
        return np.concatenate([self.alpha * self._common(), own, np.zeros(_NUM_OWN)])

    def draft_probabilities(self) -> NDArray[np.float64]:
        """Return q ``[VOCAB_SIZE]``, before tokens are renamed."""
        own = np.full(_NUM_OWN, (1 - self.alpha) / _NUM_OWN)
        return np.concatenate([self.alpha * self._common(), np.zeros(_NUM_OWN), own])

    def _common(self) -> NDArray[np.float64]:
        """Return u: one peak and the rest uniform, such that Σ u² = overlap / alpha²."""
        n = _NUM_COMMON
        squares = self.overlap / self.alpha**2 if self.alpha**2 else 1.0
        peak = min(1.0, (1 + math.sqrt(max(0.0, 1 - n * (1 - (n - 1) * squares)))) / n)
        return np.array([peak, *[(1 - peak) / (n - 1)] * (n - 1)])


def renamed(probabilities: NDArray[np.float64], state: int) -> NDArray[np.float32]:
    """Return the logits ``[VOCAB_SIZE]`` of ``probabilities`` after the context of hash ``state``,
    which renames the tokens."""
    shift = chained(state, _RENAMING) % VOCAB_SIZE
    with np.errstate(divide="ignore"):
        logits = np.log(probabilities).astype(np.float32)
    # Like np.roll, which is slower for a vocabulary this small.
    return np.concatenate([logits[VOCAB_SIZE - shift :], logits[: VOCAB_SIZE - shift]])
