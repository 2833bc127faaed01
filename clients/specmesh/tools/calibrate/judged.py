"""How good scores are on positions that no fit has seen."""

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
    """How good a fit is on ``num_positions``, at a share ``agreed`` of which the target agreed.

    ``agreed_of_kept``: for each scorer and each of ``KEPT_SHARES``, at which share of the
    positions that it scores highest the target agreed.
    """

    num_positions: int
    agreed: float
    reliability: Reliability
    by_temperature: Mapping[float, Reliability]
    agreed_of_kept: Mapping[str, Mapping[float, float]]


def judge(calibration: Calibration, positions: Mapping[float, Sequence[Position]]) -> JudgedFit:
    """Judge a fit on ``positions``, which are by temperature."""
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
