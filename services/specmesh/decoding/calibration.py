"""From scores to probabilities: how likely the target agrees with the drafter at a place.

A logistic regression on the log-odds of the drafter's likeliest token (Platt 1999), so that it
ranks places as CALID's score does. With margin and entropy beside it the fit is a little better
on places of given texts; but over whole answers, which go on from what was kept, the text was
the worse for it at equal share, by the target's own likelihood.

It holds for the pair of models, and the way of sampling, whose verified places it was fitted to:
in coupled mode noise is part of the drafter's probabilities, which then mean something else than
at temperature 0. Fitted to the one and used for the other, it still ranks places as well, but is
off by a tenth.
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
MIN_PLACES: Final = 100
"""Fewer say too little about how often the target agrees."""

_LEAST = 2.0**-20
"""Less than this is as good as nothing: keeps the log-odds of a certain token finite."""
_RIDGE = np.array([1e-6, 1.0])
"""Pulls bias and slope (of standardised log-odds) to 0: the slope would be infinite where one
threshold tells all verdicts. The bias is pulled just enough for Newton's equations."""
_MAX_STEPS = 100
_ENOUGH = 1e-9

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A ``Scorer``: the probability that the target says the drafter's likeliest token.

    The sigmoid of ``bias`` plus ``slope`` times its log-odds, fitted to ``num_places``. Raises
    ``ValueError`` for numbers that are none.
    """

    slope: float
    bias: float
    num_places: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and math.isfinite(self.bias)):
            raise ValueError("slope and bias must be finite")
        if self.num_places < 0:
            raise ValueError("num_places must not be negative")

    def __call__(self, choices: TopK) -> float:
        """The probability, in [0, 1]."""
        return _sigmoid(self.bias + self.slope * log_odds(choices))

    @classmethod
    def fit(cls, places: Sequence[TopK], agreed: Sequence[bool]) -> Self:
        """The calibration under which what was ``agreed`` at ``places`` is likeliest.

        The same for the same places. Raises ``ValueError`` if there are fewer than
        ``MIN_PLACES``, not as many as verdicts, or if the target agreed at all of them or at
        none.
        """
        if len(places) != len(agreed):
            raise ValueError(f"{len(places)} places, but {len(agreed)} verdicts")
        if len(places) < MIN_PLACES:
            raise ValueError(f"{len(places)} places are too few: it takes {MIN_PLACES}")
        if len(set(map(bool, agreed))) < 2:  # noqa: PLR2004 - both verdicts
            which = "all" if agreed[0] else "none"
            raise ValueError(f"the target agreed at {which} of {len(places)} places")
        values = np.array([log_odds(choices) for choices in places])
        centre = values.mean()
        spread = values.std() or 1.0  # where they are all alike the slope ends up as 0
        bias, slope = _regress((values - centre) / spread, np.array(agreed, np.float64))
        return cls(float(slope / spread), float(bias - slope / spread * centre), len(places))

    def to_json(self) -> str:
        """As text, for a file."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What ``to_json`` wrote. Raises ``ValueError`` if it is anything else."""
        try:
            read = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from None
        if not isinstance(read, dict) or "version" not in read:
            raise ValueError("not a calibration")
        if read["version"] != VERSION:
            raise ValueError(f"version {read['version']!r} is not known, only {VERSION}")
        if type(read.get("num_places")) is not int:
            raise ValueError("num_places must be an integer")
        return cls(_number(read.get("slope")), _number(read.get("bias")), read["num_places"])


def log_odds(choices: TopK) -> float:
    """Of the likeliest token, finite even where it is certain."""
    best = choices.probabilities[0]
    return math.log(max(best, _LEAST) / max(1 - best, _LEAST))


def _regress(values: Floats, agreed: Floats) -> Floats:
    """Bias and slope of a logistic regression on ``values`` ``[n]``.

    Newton's method (iteratively reweighted least squares), with steps halved for as long as
    they overshoot: the loss is convex, so that there is one minimum and this finds it.
    """
    rows = np.column_stack([np.ones_like(values), values])

    def loss(weights: Floats) -> float:
        scores = rows @ weights
        missed = np.logaddexp(0, scores) - agreed * scores
        return float(missed.sum() + _RIDGE @ weights**2 / 2)

    weights = np.zeros(rows.shape[1])
    for _ in range(_MAX_STEPS):
        expected = (1 + np.tanh(rows @ weights / 2)) / 2
        slope = rows.T @ (expected - agreed) + _RIDGE * weights
        curvature = (rows.T * (expected * (1 - expected))) @ rows + np.diag(_RIDGE)
        step = np.linalg.solve(curvature, slope)
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
    """Scores in (``lower``, ``upper``], the lowest bin with its lower end; never empty."""

    lower: float
    upper: float
    count: int
    mean_score: float
    agreed: float
    """The share of its places at which the target agreed."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """A reliability diagram, and what it comes to: the expected calibration error.

    ``ece`` is how far the mean score of a bin is from the share that was agreed, on average
    over all scores (Naeini et al. 2015; Guo et al. 2017, Eq. 3): 0 at best, 1 at worst.
    """

    bins: tuple[Bin, ...]
    ece: float


def reliability(scores: Sequence[float], agreed: Sequence[bool], num_bins: int = 10) -> Reliability:
    """How well ``scores`` in [0, 1] tell the share that is ``agreed``, in bins of one width.

    Raises ``ValueError`` for scores outside, none at all, not as many as verdicts, or without
    a bin.
    """
    if len(scores) != len(agreed) or not len(scores):
        raise ValueError(f"{len(scores)} scores, {len(agreed)} verdicts: both must be one number")
    if num_bins < 1:
        raise ValueError("num_bins must be at least 1")
    values, verdicts = np.asarray(scores, np.float64), np.asarray(agreed, np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("scores must be in [0, 1]")
    places = np.maximum(np.ceil(values * num_bins).astype(np.int64) - 1, 0)
    bins = []
    for place in np.unique(places).tolist():
        inside = places == place
        bins.append(
            Bin(
                lower=place / num_bins,
                upper=(place + 1) / num_bins,
                count=int(inside.sum()),
                mean_score=float(values[inside].mean()),
                agreed=float(verdicts[inside].mean()),
            )
        )
    errors = (each.count * abs(each.mean_score - each.agreed) for each in bins)
    return Reliability(tuple(bins), math.fsum(errors) / len(values))
