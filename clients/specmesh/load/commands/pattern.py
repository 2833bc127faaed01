"""How arrivals of an open loop are spaced."""

from __future__ import annotations

from enum import StrEnum


class ArrivalPattern(StrEnum):
    """Values of ``--arrivals``."""

    POISSON = "poisson"
    CONSTANT = "constant"
    GAMMA = "gamma"
    RAMP = "ramp"
