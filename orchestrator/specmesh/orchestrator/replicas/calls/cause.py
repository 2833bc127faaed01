"""The cause of a call, an event that its strategy handled, recorded on the call's span."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from opentelemetry.util.types import AttributeValue

from specmesh.serving import conventions as names
from specmesh.serving.process.run_delay import run_delay_s


class Moment(NamedTuple):
    """The time of an event, in seconds."""

    time_s: float
    """Time by the event loop's clock."""
    run_delay_s: float = 0.0
    """Total time that the event loop had waited for a CPU core by then."""


Now = Callable[[], Moment]


def clock(*, recorded: bool) -> Now:
    """Return a function for the current moment, which omits the run delay unless spans are
    ``recorded``."""
    time = asyncio.get_running_loop().time
    if recorded:
        return lambda: Moment(time(), run_delay_s())
    return lambda: Moment(time())


class Cause:
    """The event that led to a command, and the moment ``arrived`` when it arrived.

    It is recorded because spans overlap, so that a trace alone does not tell which result a call
    waited for.
    """

    def __init__(self, event: str, arrived: Moment, now: Now) -> None:
        self._event = event
        self._arrived = arrived
        self._now = now
        self._told = False

    def attributes(self) -> Mapping[str, AttributeValue]:
        """Return the attributes of the span of the call's first attempt; later ones get none."""
        if self._told:
            return {}
        self._told = True
        now, arrived = self._now(), self._arrived
        reaction_s = now.time_s - arrived.time_s
        # The counter is read just after the clock, and the core may have been lost in between.
        delay_s = min(now.run_delay_s - arrived.run_delay_s, reaction_s)
        return {
            names.CAUSE: self._event,
            names.REACTION_MS: reaction_s * 1e3,
            names.RUN_DELAY_MS: delay_s * 1e3,
        }
