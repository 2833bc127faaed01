"""From a drafter's confidence to the probability that the target agrees, learnt from verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MAX_SLOPE: Final = 100.0
MAX_BIAS: Final = 100.0

_SURE: Final = 1e-4
"""Keeps logits finite: nothing is surer than this."""


@dataclass(frozen=True, slots=True)
class Platt:
    """A token that the drafter gave probability c is accepted with probability
    sigmoid(slope * logit(c) + bias) (Platt 1999).

    ``slope`` is in [0, ``MAX_SLOPE``], ``bias`` within ``MAX_BIAS`` of 0. As it is made it
    takes the drafter at its word.
    """

    slope: float = 1.0
    bias: float = 0.0

    def __call__(self, confidence: float) -> float:
        """The probability of acceptance; never falls as ``confidence`` rises."""
        return self.at(logit(confidence))

    def at(self, logit_: float) -> float:
        """The same, of the confidence with that logit."""
        return 0.5 + 0.5 * math.tanh(0.5 * (self.slope * logit_ + self.bias))


class OnlinePlatt:
    """Follows each tried token by a Newton step (recursive Laplace approximation).

    Slope and bias begin at the identity with a Gaussian prior. The step is bounded by the
    highest curvature there is, 1/4 (Böhning and Lindsay 1988): one rejected token of which the
    drafter was sure can't throw it off.
    """

    def __init__(self) -> None:
        self.latest = Platt()
        # The covariance of (slope, bias): both are trusted to about one half.
        self._var_slope, self._var_bias, self._covariance = 0.25, 0.25, 0.0

    def learn(self, confidences: Iterable[float], trials: Iterable[bool]) -> None:
        """Take in whether tokens of these confidences were accepted, those that were tried."""
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
        # Below 0 a surer drafter would be believed less.
        self.latest = Platt(_within(0.0, slope, MAX_SLOPE), _within(-MAX_BIAS, bias, MAX_BIAS))
        curvature = expected * (1 - expected)
        shrink = curvature / (1 + curvature * variance)
        self._var_slope -= shrink * gain_slope * gain_slope
        self._var_bias -= shrink * gain_bias * gain_bias
        self._covariance -= shrink * gain_slope * gain_bias


def logit(confidence: float) -> float:
    """log(c / (1 - c)), of the nearest c that is not too sure."""
    bounded = _within(_SURE, confidence, 1 - _SURE)
    return math.log(bounded / (1 - bounded))


def _within(least: float, value: float, most: float) -> float:
    return min(max(value, least), most)
