"""One timer for the deadlines of all calls: nearly every call ends before its own."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Protocol


class Due(Protocol):
    """Something to be rung when it is due."""

    @property
    def due(self) -> float:
        """The time, by the event loop's clock, at which to ring next. It may change at any ring; at
        other times only to an earlier one that is then added anew."""

    def rings(self, now: float) -> None:
        """``due`` has come. Nothing that this does may raise."""


class Alarm:
    """Rings each of many that wait when it is due. A timer for each would be set and cancelled in
    vain for almost all of them."""

    def __init__(self) -> None:
        self._waiting: dict[Due, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf

    def add(self, waiting: Due) -> None:
        """Ring ``waiting`` when it is due, until it is discarded."""
        self._waiting[waiting] = None
        if waiting.due < self._at:
            self._set(waiting.due)

    def discard(self, waiting: Due) -> None:
        """Ring ``waiting`` no more."""
        self._waiting.pop(waiting, None)

    def _set(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._ring)

    def _ring(self) -> None:
        now = asyncio.get_running_loop().time()
        self._at, self._timer = inf, None
        try:
            for each in list(self._waiting):
                if each in self._waiting and each.due <= now:
                    each.rings(now)
        finally:
            earliest = min((each.due for each in self._waiting), default=inf)
            if earliest < self._at:
                self._set(earliest)
