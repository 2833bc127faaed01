"""The quality of scores on positions that no fit has seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specmesh.decoding.predict.calibration import Calibration, Reliability, reliability
from specmesh.decoding.predict.confidence import CALIBRATED, SCORERS, Scorer
from specmesh.tools.calibrate.collect import Position

KEPT_SHARES = (0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True, slots=True)
class JudgedFit:
    """The quality of a fit on ``num_positions``; the target agreed at the share ``agreed`` of them.

    ``agreed_of_kept`` has, for each scorer and each of ``KEPT_SHARES``, the share of agreement
    among that share of positions with the highest scores.
    """

    num_positions: int
    agreed: float
    reliability: Reliability
    by_temperature: Mapping[float, Reliability]
    agreed_of_kept: Mapping[str, Mapping[float, float]]


def judge(calibration: Calibration, positions: Mapping[float, Sequence[Position]]) -> JudgedFit:
    """Judge a fit on ``positions``, given by temperature."""
    everything = [position for group in positions.values() for position in group]
    agreed = np.array([agreed_there for _, agreed_there in everything])
    scorers: Mapping[str, Scorer] = {**SCORERS, CALIBRATED: calibration}
    return JudgedFit(
        num_positions=len(everything),
        agreed=float(agreed.mean()),
        reliability=_reliability(calibration, everything),
        by_temperature={t: _reliability(calibration, group) for t, group in positions.items()},
        agreed_of_kept={
            name: _agreed_of_kept(scorer, everything) for name, scorer in scorers.items()
        },
    )


def _reliability(calibration: Callable[..., float], positions: Sequence[Position]) -> Reliability:
    return reliability(
        [calibration(choices) for choices, _ in positions], [agreed for _, agreed in positions]
    )


def _agreed_of_kept(scorer: Scorer, positions: Sequence[Position]) -> dict[float, float]:
    surest_first = np.argsort([-scorer(choices) for choices, _ in positions], kind="stable")
    agreed = np.array([agreed for _, agreed in positions])[surest_first]
    return {share: float(agreed[: round(share * agreed.size)].mean()) for share in KEPT_SHARES}
