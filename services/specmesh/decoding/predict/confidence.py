"""How sure a drafter is at a position: scores to compare with a threshold.

Higher is surer for every score, so that CALID's ``C > threshold`` (Hua et al., Algorithm 2) applies
as it is. The paper's Eq. 1 says that the confidence is the negative log-likelihood of the likeliest
token; that is low where the drafter is sure, so here its sign is reversed.

The scores judge a position, not the token drawn there: at temperature 0 that is the likeliest
anyway; in rejection mode Algorithm 2 draws it from the distribution that was judged. In coupled
mode the probabilities include the noise of the draw, so that the token drawn is again the
likeliest. That is not Algorithm 2, which judges before it draws: see ``strategies/filter.py``.
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
    """Log-probability of the likeliest token (CALID, Eq. 1), at most 0."""
    return math.log(choices.probabilities[0])


def margin(choices: TopK) -> float:
    """The likeliest token's probability minus that of the second, in [0, 1].

    A second that is not listed counts as 0, so request at least 2 choices.
    """
    return choices.probabilities[0] - sum(choices.probabilities[1:2])


def entropy(choices: TopK) -> float:
    """Minus the entropy in nats of the whole distribution, at most 0."""
    return -choices.entropy


SCORERS: Final[Mapping[str, Scorer]] = MappingProxyType(
    {"log-probability": log_probability, "margin": margin, "entropy": entropy}
)
"""The scorers that need no calibration, by name."""
