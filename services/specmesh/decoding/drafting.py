"""The drafter's side of the bargain: tokens chosen so that the target agrees often."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.noise import Purpose, gumbel
from specmesh.decoding.sampling import (
    AcceptanceMode,
    Distribution,
    Sampling,
    coupled_scores,
    likeliest,
    require_peak,
    warp,
)

MAX_CANDIDATES = 64
"""Bounds a draft distribution, which travels with every verification."""

_STEPS = 1 << 24


def draw_children(
    logits: NDArray[np.floating[Any]], sampling: Sampling, position: int, count: int
) -> tuple[tuple[int, ...], Distribution | None]:
    """Up to ``count`` (at least 1) different tokens for ``position``, in the order to try them.

    ``logits`` ``[vocab]`` are the drafter's. Greedy: the likeliest. Coupled: the highest of
    log q + the noise that the target will use. Rejection: draws without replacement (Gumbel
    top-k, Kool et al. 2019) from the distribution returned beside them, which the verifier
    must be given. There are fewer where the distribution holds fewer tokens. Raises
    ``FloatingPointError`` as ``warp`` does.
    """
    if sampling.mode is AcceptanceMode.REJECTION:
        draft = draft_distribution(logits, sampling)
        noise = gumbel(sampling.seed, position, Purpose.DRAFT, draft.token_ids)
        drawn = likeliest(np.log(draft.probabilities) + noise, count)
        return tuple(draft.token_ids[drawn].tolist()), draft
    if sampling.mode is AcceptanceMode.GREEDY:
        require_peak(logits.max())
        best = likeliest(logits, count)
        return tuple(best[logits[best] > -np.inf].tolist()), None
    token_ids, scores = coupled_scores(logits, sampling, position)
    return tuple(token_ids[likeliest(scores, count)].tolist()), None


def draft_distribution(logits: NDArray[np.floating[Any]], sampling: Sampling) -> Distribution:
    """What rejection mode draws from: the warped distribution, made fit to travel.

    Cut to the ``MAX_CANDIDATES`` likeliest tokens and rounded to multiples of 2**-24 with sum
    1: such numbers are float32 exactly, so a verifier that divides what it receives by the
    sum works with the very numbers drawn from here. Neither step costs exactness: the
    acceptance rule yields the target's distribution for *any* q, as long as the drafts were
    drawn from that same q. It costs acceptance, by no more than the probability cut off.
    """
    warped = warp(logits, sampling)
    kept = np.sort(likeliest(warped.probabilities, MAX_CANDIDATES))
    token_ids, probabilities = warped.token_ids[kept], warped.probabilities[kept]
    steps = np.rint(probabilities * (_STEPS / probabilities.sum()))
    # The rest, at most half a step a token, goes to the likeliest, which has the most to give.
    steps[steps.argmax()] += _STEPS - steps.sum()
    drawable = steps > 0
    return Distribution(token_ids[drawable], steps[drawable] / _STEPS)
