"""Calibration of a drafter's confidence to the probability of acceptance, learnt from verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MAX_SLOPE: Final = 100.0
MAX_BIAS: Final = 100.0

_SURE: Final = 1e-4
"""Confidences are kept this far from 0 and 1, so that their logits stay finite."""


@dataclass(frozen=True, slots=True)
class Platt:
    """A map from the drafter's confidence c in a token to its probability of acceptance,
    sigmoid(slope * logit(c) + bias) (Platt 1999).

    ``slope`` is in [0, ``MAX_SLOPE``], ``bias`` within ``MAX_BIAS`` of 0. The default is the
    identity, which uses confidences as probabilities.
    """

    slope: float = 1.0
    bias: float = 0.0

    def __call__(self, confidence: float) -> float:
        """Return the probability of acceptance, which never falls as ``confidence`` rises."""
        return self.at(logit(confidence))

    def at(self, logit_: float) -> float:
        """Return the probability of acceptance at the confidence with the logit ``logit_``."""
        return 0.5 + 0.5 * math.tanh(0.5 * (self.slope * logit_ + self.bias))


class OnlinePlatt:
    """A fit of ``Platt`` with one Newton step for each tried token (recursive Laplace
    approximation).

    Slope and bias begin at the identity with a Gaussian prior. The step is bounded with the highest
    possible curvature, 1/4 (Böhning and Lindsay 1988), so that one rejected token with a high
    confidence can't derail it. Invariant: ``latest`` never falls as the confidence rises.
    """

    def __init__(self) -> None:
        self.latest = Platt()
        # The covariance of (slope, bias): a standard deviation of one half for each.
        self._var_slope, self._var_bias, self._covariance = 0.25, 0.25, 0.0

    def learn(self, confidences: Iterable[float], trials: Iterable[bool]) -> None:
        """Learn whether tokens with these confidences were accepted; ``trials`` may be shorter,
        since tokens after a rejection are not tried."""
        for confidence, accepted in zip(confidences, trials, strict=False):
            self._learn(logit(confidence), accepted)

    def _learn(self, logit_: float, accepted: bool) -> None:
        expected = self.latest.at(logit_)
        gain_slope = self._var_slope * logit_ + self._covariance
        gain_bias = self._covariance * logit_ + self._var_bias
        variance = gain_slope * logit_ + gain_bias
        step = (accepted - expected) / (1 + variance / 4)
        slope = self.latest.slope + gain_slope * step
        bias = self.latest.bias + gain_bias * step
        # With a slope below 0 a higher confidence would mean a lower probability.
        self.latest = Platt(_within(0.0, slope, MAX_SLOPE), _within(-MAX_BIAS, bias, MAX_BIAS))
        curvature = expected * (1 - expected)
        shrink = curvature / (1 + curvature * variance)
        self._var_slope -= shrink * gain_slope * gain_slope
        self._var_bias -= shrink * gain_bias * gain_bias
        self._covariance -= shrink * gain_slope * gain_bias


def logit(confidence: float) -> float:
    """Return log(c / (1 - c)), with c ``confidence`` kept away from 0 and 1 by ``_SURE``."""
    bounded = _within(_SURE, confidence, 1 - _SURE)
    return math.log(bounded / (1 - bounded))


def _within(least: float, value: float, most: float) -> float:
    return min(max(value, least), most)
