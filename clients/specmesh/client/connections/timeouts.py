"""How long the client waits, phase by phase."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits in seconds; no wait is unlimited."""

    connect_s: float = 5.0
    """For one attempt to connect to one target."""
    start_s: float = 15.0
    """For the first event of a call, its wait for admission included."""
    idle_s: float = 60.0
    """For the next event of an open stream; a stream silent for longer counts as broken. One
    with heartbeats counts as broken much sooner, after four that are missing."""
    generate_s: float = 600.0
    """For a whole answer, retries and resumes included, unless the call names its own limit."""
    call_s: float = 10.0
    """For any other call, such as the list of models, all targets and retries together."""

    def __post_init__(self) -> None:
        for name, seconds in asdict(self).items():
            check_seconds(name, seconds)


def check_seconds(name: str, seconds: float) -> None:
    """Raise TypeError or ValueError for what is no time to wait; ``name`` is the argument's."""
    if not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    if not 0 < seconds < math.inf:  # also refuses NaN
        raise ValueError(f"{name} must be above 0 and finite, not {seconds}")
