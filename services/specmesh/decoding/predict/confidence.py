"""Scores of a drafter's confidence at a position, to compare with a threshold.

For every score, higher means more confident, so CALID's ``C > threshold`` (Hua et al., Algorithm 2)
applies unchanged. The paper's Eq. 1 defines confidence as the negative log-likelihood of the
likeliest token; that is low where the drafter is confident, so here its sign is reversed.

The scores judge a position, not the token drawn there. At temperature 0 that token is the
likeliest; in rejection mode Algorithm 2 draws it from the judged distribution. In coupled mode the
probabilities include the noise of the draw, so the drawn token is again the likeliest. That is not
Algorithm 2, which judges before it draws: see ``strategies/filter.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from specmesh.decoding.drafting import TopK

Scorer = Callable[[TopK], float]

CALIBRATED: Final = "calibrated"
"""The name of the scorer that needs a ``Calibration``; the others need nothing."""


def log_probability(choices: TopK) -> float:
    """Return the log-probability of the likeliest token (CALID, Eq. 1), at most 0."""
    return math.log(choices.probabilities[0])


def margin(choices: TopK) -> float:
    """Return the likeliest token's probability minus that of the second, in [0, 1].

    A second token that is not listed counts as 0, so request at least 2 choices.
    """
    return choices.probabilities[0] - sum(choices.probabilities[1:2])


def entropy(choices: TopK) -> float:
    """Return minus the entropy in nats of the whole distribution, at most 0."""
    return -choices.entropy


SCORERS: Final[Mapping[str, Scorer]] = MappingProxyType(
    {"log-probability": log_probability, "margin": margin, "entropy": entropy}
)
"""The scorers that need no calibration, by name."""
