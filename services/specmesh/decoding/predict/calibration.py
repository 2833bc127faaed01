"""Calibration of scores to probabilities that the target agrees with the drafter at a position.

It is a logistic regression on the log-odds of the drafter's likeliest token (Platt 1999), so it
ranks positions as CALID's score does. With margin and entropy as further inputs the fit was a
little better on given texts. But whole answers, in which each token follows those kept before it,
became worse by the target's own likelihood at an equal share of kept tokens.

It holds for the pair of models and the sampling mode to whose verified positions it was fitted: in
coupled mode the drafter's probabilities include noise, so they differ in meaning from those at
temperature 0. A calibration that was fitted to one and is used for the other still ranks positions
as well, but its probabilities are off by a tenth.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.drafting import TopK

VERSION: Final = 2
MIN_POSITIONS: Final = 100
"""The least number of positions for an estimate of how often the target agrees."""

_LEAST = 2.0**-20
"""Replaces any smaller probability, to keep the log-odds of a certain token finite."""
_RIDGE = np.array([1e-6, 1.0])
"""L2 penalties on bias and slope (of standardised log-odds). Without the one on the slope, the
slope would be infinite if a threshold separates all verdicts; the one on the bias is just enough to
solve Newton's equations."""
_MAX_STEPS = 100
_ENOUGH = 1e-9

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A ``Scorer``: the probability that the target's token is the drafter's likeliest.

    That is the sigmoid of ``bias`` plus ``slope`` times the token's log-odds, fitted to
    ``num_positions`` positions. Raises ``ValueError`` unless ``slope`` and ``bias`` are finite and
    ``num_positions`` is not negative.
    """

    slope: float
    bias: float
    num_positions: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and math.isfinite(self.bias)):
            raise ValueError("slope and bias must be finite")
        if self.num_positions < 0:
            raise ValueError("num_positions must not be negative")

    def __call__(self, choices: TopK) -> float:
        """Return the probability, in [0, 1], at a position with these ``choices``."""
        return _sigmoid(self.bias + self.slope * log_odds(choices))

    @classmethod
    def fit(cls, positions: Sequence[TopK], agreed: Sequence[bool]) -> Self:
        """Fit the maximum-likelihood calibration to whether the target ``agreed`` at each of
        ``positions``.

        The result depends only on the arguments. Raises ``ValueError`` for fewer positions than
        ``MIN_POSITIONS``, for a different number of verdicts, and if the target agreed at all
        positions or at none.
        """
        if len(positions) != len(agreed):
            raise ValueError(f"{len(positions)} positions, but {len(agreed)} verdicts")
        if len(positions) < MIN_POSITIONS:
            raise ValueError(
                f"{len(positions)} positions are too few: at least {MIN_POSITIONS} are needed"
            )
        if len(set(map(bool, agreed))) < 2:  # noqa: PLR2004 - both verdicts
            which = "all" if agreed[0] else "none"
            raise ValueError(f"the target agreed at {which} of {len(positions)} positions")
        values = np.array([log_odds(choices) for choices in positions])
        centre = values.mean()
        spread = values.std() or 1.0  # if all are equal, the slope becomes 0
        bias, slope = _regress((values - centre) / spread, np.array(agreed, np.float64))
        return cls(float(slope / spread), float(bias - slope / spread * centre), len(positions))

    def to_json(self) -> str:
        """Return the calibration as text, for a file."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the calibration that ``to_json`` wrote. Raises ``ValueError`` for any other
        text."""
        try:
            read = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from None
        if not isinstance(read, dict) or "version" not in read:
            raise ValueError("not a calibration")
        if read["version"] != VERSION:
            raise ValueError(f"version {read['version']!r} is not known, only {VERSION}")
        if type(read.get("num_positions")) is not int:
            raise ValueError("num_positions must be an integer")
        return cls(_number(read.get("slope")), _number(read.get("bias")), read["num_positions"])


def log_odds(choices: TopK) -> float:
    """Return the log-odds of the likeliest token, finite even if it is certain."""
    best = choices.probabilities[0]
    return math.log(max(best, _LEAST) / max(1 - best, _LEAST))


def _regress(values: Floats, agreed: Floats) -> Floats:
    """Return bias and slope, ``[2]``, of a logistic regression of ``agreed`` on ``values``, both
    ``[n]``.

    This is Newton's method (iteratively reweighted least squares), with steps halved while they
    overshoot: the loss is convex, so there is one minimum and the method finds it.
    """
    rows = np.column_stack([np.ones_like(values), values])

    def loss(weights: Floats) -> float:
        scores = rows @ weights
        missed = np.logaddexp(0, scores) - agreed * scores
        return float(missed.sum() + _RIDGE @ weights**2 / 2)

    weights = np.zeros(rows.shape[1])
    for _ in range(_MAX_STEPS):
        expected = (1 + np.tanh(rows @ weights / 2)) / 2
        gradient = rows.T @ (expected - agreed) + _RIDGE * weights
        hessian = (rows.T * (expected * (1 - expected))) @ rows + np.diag(_RIDGE)
        step = np.linalg.solve(hessian, gradient)
        while np.abs(step).max() > _ENOUGH and loss(weights - step) > loss(weights):
            step /= 2
        weights = weights - step
        if np.abs(step).max() <= _ENOUGH:
            break
    return weights


def _sigmoid(score: float) -> float:
    return (1 + math.tanh(score / 2)) / 2


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("a number is too large") from None


@dataclass(frozen=True, slots=True)
class Bin:
    """The scores in (``lower``, ``upper``], in the lowest bin also ``lower``; never empty."""

    lower: float
    upper: float
    count: int
    mean_score: float
    agreed: float
    """The share of the bin's positions at which the target agreed."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """A reliability diagram and its summary, the expected calibration error.

    ``ece`` is the mean distance, over all scores, of the mean score of a bin from its share of
    agreement (Naeini et al. 2015; Guo et al. 2017, Eq. 3): 0 at best, 1 at worst.
    """

    bins: tuple[Bin, ...]
    ece: float


def reliability(scores: Sequence[float], agreed: Sequence[bool], num_bins: int = 10) -> Reliability:
    """Measure how well ``scores`` in [0, 1] predict the share that ``agreed``, in bins of equal
    width.

    Raises ``ValueError`` for scores outside [0, 1], without scores, for a different number of
    verdicts, or without bins.
    """
    if len(scores) != len(agreed) or not len(scores):
        raise ValueError(
            f"{len(scores)} scores and {len(agreed)} verdicts: they must be equally many"
        )
    if num_bins < 1:
        raise ValueError("num_bins must be at least 1")
    values, verdicts = np.asarray(scores, np.float64), np.asarray(agreed, np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("scores must be in [0, 1]")
    bin_of = np.maximum(np.ceil(values * num_bins).astype(np.int64) - 1, 0)
    bins = []
    for index in np.unique(bin_of).tolist():
        inside = bin_of == index
        bins.append(
            Bin(
                lower=index / num_bins,
                upper=(index + 1) / num_bins,
                count=int(inside.sum()),
                mean_score=float(values[inside].mean()),
                agreed=float(verdicts[inside].mean()),
            )
        )
    errors = (each.count * abs(each.mean_score - each.agreed) for each in bins)
    return Reliability(tuple(bins), math.fsum(errors) / len(values))
