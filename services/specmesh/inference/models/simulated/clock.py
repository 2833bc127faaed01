"""The time of simulated forward passes, each of which ends at an absolute time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from specmesh.inference.model import Cancellation, Interrupted

WAKE_UP_S = 0.5e-3
"""The time before a deadline at which the waiting thread first wakes."""


@dataclass(slots=True)
class SimulatedProcessor:
    """The simulated processor, which runs one forward pass at a time."""

    free_since_s: float = 0.0


class CallClock:
    """The clock of a call for its successive forward passes.

    The first begins when the call has arrived and the processor is free. Time spent between two
    forward passes counts as part of the second, so that delays do not add up.
    """

    def __init__(self, cancellation: Cancellation, processor: SimulatedProcessor) -> None:
        self.cancellation = cancellation
        self.processor = processor
        self.ended_s = max(cancellation.arrived_s, processor.free_since_s)
        """The time at which its latest forward pass ended, or the first may begin."""


def pass_time(clocks: Sequence[CallClock], seconds: float) -> None:
    """Return once a forward pass of ``seconds`` is over that all ``clocks`` share, of one
    processor, and that follows the latest of theirs.

    Returns immediately if that time has passed. If it has passed by more than another forward pass,
    the consumer was stalled, and the pass begins now. Raises ``Interrupted`` once no call wants the
    result.
    """
    now, processor = time.perf_counter(), clocks[0].processor
    ended_s = max(clock.ended_s for clock in clocks) + seconds
    if now - ended_s > seconds:
        ended_s = now + seconds
    # A core that has slept long wakes late, so it is woken a moment earlier.
    for until_s in (ended_s - WAKE_UP_S, ended_s):
        if not _wait([clock.cancellation for clock in clocks], until_s):
            processor.free_since_s = time.perf_counter()
            raise Interrupted
    processor.free_since_s = ended_s
    for clock in clocks:
        clock.ended_s = ended_s


def _wait(cancellations: Sequence[Cancellation], until_s: float) -> bool:
    """Wait until that time; return early, with False, once every call is cancelled."""
    for cancellation in cancellations:
        if not cancellation.wait(max(0.0, until_s - time.perf_counter())):
            return True
    return False
