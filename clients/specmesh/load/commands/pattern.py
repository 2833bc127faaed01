"""The arrival processes of an open loop."""

from __future__ import annotations

from enum import StrEnum


class ArrivalPattern(StrEnum):
    """The values of ``--arrivals``."""

    POISSON = "poisson"
    CONSTANT = "constant"
    GAMMA = "gamma"
    RAMP = "ramp"
