"""The target's distribution at a bonus token's place, for draft tokens that are there by then.

A verification that accepts a whole run adds a bonus token, and an empty one brings nothing
else. In rejection mode that token is a draw of its own, so it equals the token that a drafter
has put at the same place meanwhile with probability Σ p·q only, while verification would
accept that token with probability Σ min(p, q). A strategy that drafts on while the target
verifies would lose nearly every draft to its bonus tokens. So the verdict brings p itself, and
a draft token that is there when the verdict comes is tried by Leviathan's rule, without another
forward.

p is told token by token where it is high; the rest, the tail, is told as one outcome: its mass
and one token drawn from it. Nothing of the law is lost by that. Map p and q to the listed tokens
and the tail: x ~ q makes its image a draw from q's image, so the rule (Leviathan et al. 2023,
Appendix A.1) yields an outcome that has p's image for its law; and where that is the tail, its
token was drawn from p given the tail, independently of x. What is lost is acceptance: a draft
token from the tail is hardly ever the one drawn there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.noise import Purpose, gumbel, uniforms
from specmesh.decoding.sampling import Distribution, likeliest

MAX_BONUS_CANDIDATES = 64
"""As many as a draft distribution has: more would hardly ever be asked about."""


@dataclass(frozen=True, slots=True, eq=False)
class Bonus:
    """The target's distribution p at ``position`` of the answer drawn with ``seed``.

    ``token_ids`` ``[n]`` are distinct and ascending, ``probabilities`` ``[n]`` above 0. All other
    tokens have ``tail_mass`` together; if that is above 0, ``tail_token`` was drawn from them
    and has ``tail_token_probability`` of its own. The probabilities and the mass add up to 1.
    """

    seed: int
    position: int
    token_ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    tail_mass: float = 0.0
    tail_token: int = 0
    tail_token_probability: float = 0.0

    @classmethod
    def summarise(
        cls, probabilities: NDArray[np.float64], seed: int, position: int, num_candidates: int
    ) -> Bonus:
        """Of the dense p, ``probabilities`` ``[vocab]``, the likeliest ``num_candidates``."""
        listed = np.sort(likeliest(probabilities, num_candidates))
        listed = listed[probabilities[listed] > 0]
        rest = probabilities.copy()
        rest[listed] = 0
        tail_mass = float(rest.sum())
        if not tail_mass:
            return cls(seed, position, listed, probabilities[listed])
        tail_token = draw_own(np.flatnonzero(rest), rest[rest > 0], seed, position)
        return cls(
            *(seed, position, listed, probabilities[listed]),
            *(tail_mass, tail_token, float(rest[tail_token])),
        )

    def meet(self, drafts: Sequence[tuple[int, Distribution]]) -> int:
        """The token at this place, with law p, given what stands there in some drafts.

        Each of ``drafts`` is a token and what it was drawn from, independently of the others.
        They are tried in turn (multi-round speculative sampling, Miao et al. 2024): x stands
        with probability min(1, p(x) / q(x)), else p becomes norm(max(0, p - q)). Which drafts
        there are may depend on anything but the noise at this position (see ``verify``), so not
        on whether a drafter goes on after the token that it drew here.
        """
        left = np.append(self.probabilities, self.tail_mass)
        for token, draft in drafts:
            drawn_from = self._image(draft)
            (outcome,) = self._outcomes(np.array([token]))
            (noise,) = uniforms(self.seed, self.position, Purpose.ACCEPT, np.array([token]))
            if noise * drawn_from[outcome] < left[outcome]:
                return self.tail_token if outcome == len(self.token_ids) else token
            residual = (left - drawn_from).clip(min=0)
            mass = residual.sum()
            if mass > 0:  # else the two are equal but for rounding
                left = residual / mass
        return self._draw(left)

    def _image(self, draft: Distribution) -> NDArray[np.float64]:
        """The probabilities of the listed tokens and of the tail, ``[n + 1]``, under ``draft``."""
        image = np.zeros(len(self.token_ids) + 1)
        np.add.at(image, self._outcomes(draft.token_ids), draft.probabilities)
        return image

    def _outcomes(self, tokens: NDArray[np.int64]) -> NDArray[np.intp]:
        """Where each of ``tokens`` is listed; n for those of the tail."""
        nearest = np.minimum(self.token_ids.searchsorted(tokens), len(self.token_ids) - 1)
        return np.where(self.token_ids[nearest] == tokens, nearest, len(self.token_ids))

    def _draw(self, left: NDArray[np.float64]) -> int:
        """A draw from what is left of p; the very one that ``verify`` would make if no draft
        has anything of the tail."""
        token_ids, weights = self.token_ids, left[:-1]
        if left[-1] > 0 and self.tail_mass > 0:
            # Its token won among the tail's, so its noise stands for the noise of them all.
            share = self.tail_token_probability / self.tail_mass
            token_ids = np.append(token_ids, self.tail_token)
            weights = np.append(weights, left[-1] * share)
        kept = weights > 0
        return draw_own(token_ids[kept], weights[kept], self.seed, self.position)


def draw_own(
    token_ids: NDArray[np.int64], weights: NDArray[np.float64], seed: int, position: int
) -> int:
    """The target's own token in rejection mode, in proportion to ``weights`` ``[n]`` above 0.

    Gumbel-max, since replicas whose logits differ by rounding then still agree, where inverting
    the cumulative sum would add up the differences.
    """
    noise = gumbel(seed, position, Purpose.RESIDUAL, token_ids)
    return int(token_ids[(np.log(weights) + noise).argmax()])
