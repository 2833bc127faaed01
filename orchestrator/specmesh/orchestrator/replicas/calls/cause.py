"""What made a strategy ask for a call, for the call's span."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from opentelemetry.util.types import AttributeValue

from specmesh.serving import conventions as names
from specmesh.serving.process.run_delay import run_delay_s


class Moment(NamedTuple):
    """When something happened, in seconds."""

    time_s: float
    """By the event loop's clock."""
    run_delay_s: float = 0.0
    """How long the event loop had waited for a core by then, ever."""


Now = Callable[[], Moment]


def clock(*, recorded: bool) -> Now:
    """Tells the present moment; if spans are not ``recorded``, without looking at the cores."""
    time = asyncio.get_running_loop().time
    if recorded:
        return lambda: Moment(time(), run_delay_s())
    return lambda: Moment(time())


class Cause:
    """The event that a command answers, which arrived at the moment ``arrived``.

    Spans overlap, so that a trace alone does not tell which result a call had waited for.
    """

    def __init__(self, event: str, arrived: Moment, now: Now) -> None:
        self._event = event
        self._arrived = arrived
        self._now = now
        self._told = False

    def attributes(self) -> Mapping[str, AttributeValue]:
        """Of the span that begins now: the first attempt of the call. Others have other causes."""
        if self._told:
            return {}
        self._told = True
        now, arrived = self._now(), self._arrived
        reaction_s = now.time_s - arrived.time_s
        # The counter is read a moment after the clock, and a core may be lost in between.
        delay_s = min(now.run_delay_s - arrived.run_delay_s, reaction_s)
        return {
            names.CAUSE: self._event,
            names.REACTION_MS: reaction_s * 1e3,
            names.RUN_DELAY_MS: delay_s * 1e3,
        }
