"""The speeds of several ways of decoding on a machine whose own speed varies meanwhile."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from statistics import median
from typing import Final, TypeVar

Way = TypeVar("Way", bound=Hashable)

_SWEEPS: Final = 20


def polished(speeds: Mapping[Way, Mapping[int, float]]) -> dict[Way, float]:
    """Return the speed of each way at the machine's usual speed, from those in numbered passes. A
    way need not be in all passes.

    A speed is modelled as the product of a factor of the way and one of the pass (Tukey's median
    polish, on logarithms), so a pass in which all were slow is attributed to the machine.
    """
    logs = {way: {at: math.log(each) for at, each in own.items()} for way, own in speeds.items()}
    of_way = {way: median(own.values()) for way, own in logs.items()}
    of_pass: dict[int, float] = {}
    for _ in range(_SWEEPS):
        for at in {each for own in logs.values() for each in own}:
            of_pass[at] = median(own[at] - of_way[way] for way, own in logs.items() if at in own)
        usual = median(of_pass.values())
        for way, own in logs.items():
            of_way[way] = median(each - of_pass[at] for at, each in own.items()) + usual
        of_pass = {at: each - usual for at, each in of_pass.items()}
    return {way: math.exp(each) for way, each in of_way.items()}
