"""What scores are worth on places that no fit has seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specmesh.bench.calibrate.collect import Place
from specmesh.decoding.calibration import Calibration, Reliability, reliability
from specmesh.decoding.confidence import CALIBRATED, SCORERS, Scorer

KEPT_SHARES = (0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True, slots=True)
class JudgedFit:
    """``num_places`` and the share ``agreed`` of them; ``by_temperature`` like the whole.

    ``agreed_of_kept`` has for each scorer, and each of ``KEPT_SHARES`` of the places, those it
    scores highest, the share of them at which the target agreed.
    """

    num_places: int
    agreed: float
    reliability: Reliability
    by_temperature: Mapping[float, Reliability]
    agreed_of_kept: Mapping[str, Mapping[float, float]]


def judge(calibration: Calibration, places: Mapping[float, Sequence[Place]]) -> JudgedFit:
    """``places`` are by temperature."""
    everything = [place for group in places.values() for place in group]
    agreed = np.array([place_agreed for _, place_agreed in everything])
    scorers: Mapping[str, Scorer] = {**SCORERS, CALIBRATED: calibration}
    return JudgedFit(
        num_places=len(everything),
        agreed=float(agreed.mean()),
        reliability=_reliability(calibration, everything),
        by_temperature={t: _reliability(calibration, group) for t, group in places.items()},
        agreed_of_kept={
            name: _agreed_of_kept(scorer, everything) for name, scorer in scorers.items()
        },
    )


def _reliability(calibration: Callable[..., float], places: Sequence[Place]) -> Reliability:
    return reliability(
        [calibration(choices) for choices, _ in places], [agreed for _, agreed in places]
    )


def _agreed_of_kept(scorer: Scorer, places: Sequence[Place]) -> dict[float, float]:
    surest_first = np.argsort([-scorer(choices) for choices, _ in places], kind="stable")
    agreed = np.array([agreed for _, agreed in places])[surest_first]
    return {share: float(agreed[: round(share * agreed.size)].mean()) for share in KEPT_SHARES}
