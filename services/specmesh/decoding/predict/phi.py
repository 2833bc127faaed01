"""The distribution of the number of accepted draft tokens (branch prediction, Duan et al. 2024,
Equations 10 to 12)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_MAX_P = 1 - 2.0**-10
"""Above it a geometric shape is practically uniform, which the uniform share also describes."""

_COARSE_P = np.linspace(0, _MAX_P, 65)
_COARSE_SHARE = np.linspace(0, 1, 17)
_ZOOM = np.linspace(-1, 1, 9)


@dataclass(frozen=True, slots=True)
class Phi:
    """phi(k) = a p**k (1 - p) + c for k < n; the remaining mass is at n (Eq. 12).

    k counts accepted draft tokens out of n, from 0 on; Section 4.2 draws from 1 to n, which ignores
    that the first token may be rejected. ``a`` and ``c`` correct the geometric distribution, which
    assumes independent acceptances. Raises ``ValueError`` for a ``p`` outside [0, 1].
    """

    a: float
    p: float
    c: float

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ValueError(f"p must be in [0, 1], not {self.p}")

    @classmethod
    def iid(cls, alpha: float) -> Phi:
        """Return the distribution under independent acceptance at rate ``alpha`` (Eq. 10).

        Eq. 11 sums from 1 and so overstates the mass at n, which is alpha**n.
        """
        return cls(a=1.0, p=alpha, c=0.0)

    @classmethod
    def fit(cls, counts: Sequence[float], refinements: int = 10) -> Phi:
        """Return the maximum-likelihood fit to rounds of which ``counts[k]`` accepted k of n
        tokens.

        ``counts`` ``[n + 1]`` may be fractions of rounds. With m the mass below n, the distribution
        there is m times a mixture of a geometric shape and a uniform one; the likelihood factors,
        so m is simply the observed share, and only ``p`` and the uniform share are searched for, on
        a grid that each refinement halves. Without refinement ``p`` is known to 1/64, which is
        finer than a few dozen rounds can determine.

        ``c`` comes out at 0 or above: rates that differ between texts make the tail heavier than
        geometric, never lighter. Raises ``ValueError`` without any round or draft token, or for a
        count that is negative or not finite.
        """
        n = len(counts) - 1
        if n < 1:
            raise ValueError("no draft token was tried")
        if not (all(0 <= count < math.inf for count in counts) and any(counts)):
            raise ValueError("counts must be finite, not negative, and not all 0")
        mass = sum(counts[:n]) / sum(counts)
        if not mass:
            return cls.iid(1.0)
        p, share = _likeliest_shape(np.array(counts[:n], dtype=np.float64), refinements)
        return cls(a=mass * (1 - share) / (1 - p**n), p=p, c=mass * share / n)

    def probabilities(self, n: int) -> NDArray[np.float64]:
        """Return P(k of ``n`` draft tokens accepted), ``[n + 1]``.

        An entry that ``c`` makes negative counts as 0; if those below n add up to more than 1, they
        are scaled to 1 and n gets 0.
        """
        law = []
        geometric = self.a * (1 - self.p)
        for _ in range(n):
            law.append(max(0.0, geometric + self.c))
            geometric *= self.p
        below = sum(law)
        law.append(max(0.0, 1 - below))
        return np.array(law) / max(1.0, below)

    def goodness(self, counts: Sequence[float]) -> float:
        """Return 1 minus the total variation between phi and normalised ``counts`` ``[n + 1]``; 1
        is best."""
        law = self.probabilities(len(counts) - 1)
        return float(np.minimum(law, np.array(counts) / sum(counts)).sum())


def _likeliest_shape(below: NDArray[np.float64], refinements: int) -> tuple[float, float]:
    """Return the ``p`` and the uniform share in [0, 1] that make ``below``, the counts for k < n,
    likeliest."""
    best = int((_coarse_table(len(below)) @ below).argmax())
    p = float(_COARSE_P[best // len(_COARSE_SHARE)])
    share = float(_COARSE_SHARE[best % len(_COARSE_SHARE)])
    reach_p, reach_share = 2 * _COARSE_P[1], 2 * _COARSE_SHARE[1]
    for _ in range(refinements):
        # The best so far stays on the grid, so the likelihood never falls.
        near_p = np.clip(p + reach_p * _ZOOM, 0, _MAX_P)
        near_share = np.clip(share + reach_share * _ZOOM, 0, 1)
        best = int((_log_shapes(near_p, near_share, len(below)) @ below).argmax())
        p = float(near_p[best // len(_ZOOM)])
        share = float(near_share[best % len(_ZOOM)])
        reach_p, reach_share = reach_p / 2, reach_share / 2
    return p, share


@lru_cache(maxsize=32)
def _coarse_table(n: int) -> NDArray[np.float64]:
    return _log_shapes(_COARSE_P, _COARSE_SHARE, n)


def _log_shapes(p: NDArray[np.float64], share: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return log-probabilities of k given k < ``n``, ``[len(p) * len(share), n]``."""
    geometric = p[:, None] ** np.arange(n)
    geometric /= geometric.sum(axis=1, keepdims=True)
    shapes = (1 - share)[None, :, None] * geometric[:, None, :] + share[None, :, None] / n
    # Finite, since an impossible k with a count of 0 must contribute 0, not NaN.
    return np.log(np.maximum(shapes, 1e-300)).reshape(-1, n)
