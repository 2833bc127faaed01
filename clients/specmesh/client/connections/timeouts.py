"""The client's timeouts, phase by phase."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

LONGEST_S = 2_000_000.0
"""23 days. gRPC counts in 32 bits the milliseconds of an attempt to connect, and in 64 the
nanoseconds of a call; longer timeouts count as this."""
LONGEST_INTERVAL_S = 0.5
"""The longest time between two chunks that a client may ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts in seconds; no wait is unlimited."""

    connect_s: float = 5.0
    """Timeout of one attempt to connect to one target."""
    start_s: float = 15.0
    """Timeout of the next event of a call whose answer has not begun. While it waits for admission,
    an orchestrator sends heartbeats."""
    idle_s: float = 60.0
    """Timeout of the next event of an open stream; a stream silent for longer counts as broken. A
    stream with heartbeats counts as broken much sooner, after four missed ones."""
    generate_s: float = 600.0
    """Deadline of a whole answer, retries and resumes included, unless the call sets its own."""
    call_s: float = 10.0
    """Deadline of any other call, such as the list of models, over all targets and retries."""

    def __post_init__(self) -> None:
        for name, seconds in asdict(self).items():
            check_seconds(name, seconds)


def check_interval(name: str, seconds: float) -> None:
    """Raise TypeError or ValueError, naming ``name``, unless ``seconds`` is a valid time between
    two chunks."""
    _check_number(name, seconds)
    if not 0 <= seconds <= LONGEST_INTERVAL_S:  # also refuses NaN
        raise ValueError(f"{name} must be in [0, {LONGEST_INTERVAL_S}], not {seconds}")


def check_seconds(name: str, seconds: float) -> None:
    """Raise TypeError or ValueError, naming ``name``, unless ``seconds`` is a valid timeout."""
    _check_number(name, seconds)
    if not 0 < seconds < math.inf:  # also refuses NaN
        raise ValueError(f"{name} must be above 0 and finite, not {seconds}")


def _check_number(name: str, seconds: float) -> None:
    if not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
