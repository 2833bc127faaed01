"""The target's distribution at a bonus token's position, for accepting tokens that were drafted
there meanwhile.

A verification that accepts all of a chain adds a bonus token, and the verification of an empty tree
yields only such a token. In rejection mode that token is drawn independently of the drafter, so it
equals the token that a drafter has meanwhile drawn for the same position only with probability Σ
p·q, while verification would accept that token with probability Σ min(p, q). A strategy that
continues to draft while the target verifies would lose nearly every draft to bonus tokens. So the
verdict carries p itself, and a draft token that exists when the verdict arrives is tried by
Leviathan's rule, without another forward pass.

The likeliest tokens of p are sent one by one. All others, the tail, are sent as one outcome: its
mass and one token drawn from it. The output distribution stays exact. Map p and q to the listed
tokens and the tail: x ~ q makes its image a draw from q's image, so the rule (Leviathan et al.
2023, Appendix A.1) yields an outcome distributed as p's image; if that is the tail, its token was
drawn from p given the tail, independently of x. The cost is acceptance: a draft token from the tail
rarely is the token drawn there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.logits_row import LogitsRow
from specmesh.decoding.noise import Purpose, gumbel, uniforms
from specmesh.decoding.race import winner
from specmesh.decoding.sampling import Distribution

_LEAST_WEIGHT = 1e-300
"""Divided by the total, a token of less weight might have no probability at all."""
MAX_BONUS_CANDIDATES = 64
"""The number of tokens, the same as in a draft distribution: draft tokens would rarely be among
further ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Bonus:
    """The target's distribution p at ``position``, for a request with this ``seed``.

    ``token_ids`` ``[n]`` are distinct and ascending, ``probabilities`` ``[n]`` above 0. All other
    tokens together have ``tail_mass``; if that is above 0, ``tail_token`` was drawn from them and
    has the probability ``tail_token_probability``. The probabilities and the mass add up to 1.
    """

    seed: int
    position: int
    token_ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    tail_mass: float = 0.0
    tail_token: int = 0
    tail_token_probability: float = 0.0

    @classmethod
    def summarise(cls, row: LogitsRow, seed: int, position: int, num_candidates: int) -> Bonus:
        """List the ``num_candidates`` likeliest tokens of ``row``, and draw one from the rest."""
        listed = np.sort(row.likeliest(num_candidates))
        weights = np.exp(row.log_weights(listed))
        return cls.of(row, listed[weights >= _LEAST_WEIGHT], seed, position)

    @classmethod
    def of(cls, row: LogitsRow, listed: NDArray[np.int64], seed: int, position: int) -> Bonus:
        """List the tokens ``listed``, ascending, some of which may have probability 0, and draw one
        from the rest."""
        rest = row.without(listed)
        weights = np.exp(row.log_weights(listed))
        total = float(weights.sum()) + rest.total
        mass, tail = rest.total / total, 0
        if mass:
            tail = winner(rest, seed, position, Purpose.RESIDUAL)
            (tail_weight,) = np.exp(row.log_weights(np.array([tail])))
            # Of a tail of one token, the weight and the total differ by rounding.
            if probability := min(float(tail_weight) / total, mass):
                return cls(seed, position, listed, weights / total, mass, tail, probability)
        # Without a tail, or with one of no weight by rounding.
        return cls(seed, position, listed, weights / weights.sum())

    def meet(self, drafts: Sequence[tuple[int, Distribution]]) -> int:
        """Return the token for this position, distributed as p, given the draft tokens for it.

        Each of ``drafts`` is a token and the distribution from which it was drawn, independently of
        the others. They are tried in turn (multi-round speculative sampling, Miao et al. 2024): x
        is accepted with probability min(1, p(x) / q(x)), else p becomes norm(max(0, p - q)). The
        choice of drafts must not depend on the noise at this position (see ``verify``), so not on
        whether a drafter continued after the token that it drew here.
        """
        left = self.outcomes
        for token, draft in drafts:
            drawn_from = self._image(draft)
            (outcome,) = self._outcomes(np.array([token]))
            (noise,) = uniforms(self.seed, self.position, Purpose.ACCEPT, np.array([token]))
            if noise * drawn_from[outcome] < left[outcome]:
                return self.tail_token if outcome == len(self.token_ids) else token
            residual = (left - drawn_from).clip(min=0)
            mass = residual.sum()
            if mass > 0:  # otherwise the two are equal except for rounding
                left = residual / mass
        return self.draw(left)

    @property
    def outcomes(self) -> NDArray[np.float64]:
        """The probabilities of the listed tokens and of the tail, ``[n + 1]``."""
        return np.append(self.probabilities, self.tail_mass)

    def _image(self, draft: Distribution) -> NDArray[np.float64]:
        """Return the probabilities of the listed tokens and of the tail, ``[n + 1]``, under
        ``draft``."""
        image = np.zeros(len(self.token_ids) + 1)
        np.add.at(image, self._outcomes(draft.token_ids), draft.probabilities)
        return image

    def _outcomes(self, tokens: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the index of each of ``tokens`` in ``token_ids``; n, the tail, for tokens that
        aren't listed."""
        nearest = np.minimum(self.token_ids.searchsorted(tokens), len(self.token_ids) - 1)
        return np.where(self.token_ids[nearest] == tokens, nearest, len(self.token_ids))

    def draw(self, left: NDArray[np.float64]) -> int:
        """Draw from ``left`` ``[n + 1]``, what remains of ``outcomes``."""
        token_ids, weights = self.token_ids, left[:-1]
        if left[-1] > 0 and self.tail_mass > 0:
            # It has the highest score of the tail, so in a Gumbel-max it represents the tail.
            share = self.tail_token_probability / self.tail_mass
            token_ids = np.append(token_ids, self.tail_token)
            weights = np.append(weights, left[-1] * share)
        kept = weights > 0
        # By Gumbel-max, under which replicas whose logits differ by rounding still agree; inverting
        # the cumulative sum would add up the differences.
        noise = gumbel(self.seed, self.position, Purpose.RESIDUAL, token_ids[kept])
        return int(token_ids[kept][(np.log(weights[kept]) + noise).argmax()])
