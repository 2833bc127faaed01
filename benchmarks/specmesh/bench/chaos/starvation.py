"""The check whether the benchmark itself gets enough CPU time.

A proxy that waits for a core delays every link, which no fault does. Failures at such times say
nothing about the mesh, so the times are recorded.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass

from specmesh.bench.chaos.links import Links

_EVERY_S = 0.25
LATE_S = 1.0
"""Delays from here on are recorded; no fault makes the proxy this slow."""


@dataclass(frozen=True, slots=True)
class Late:
    """A late answer of the proxy, after ``late_s``; ``load`` is the machine's one-minute load
    average."""

    at_s: float
    late_s: float
    load: float


class Watch:
    """A watch on the proxy's answers: ``late`` lists the late ones, ``longest_s`` is the longest
    time."""

    def __init__(self, links: Links, began_s: float) -> None:
        self.late: list[Late] = []
        self.longest_s = 0.0
        self._links = links
        self._began_s = began_s

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            asked_s = time.monotonic()
            await self._links.ping()
            late_s = time.monotonic() - asked_s
            self.longest_s = max(self.longest_s, late_s)
            if late_s > LATE_S:
                self.late.append(Late(asked_s - self._began_s, late_s, os.getloadavg()[0]))
            await asyncio.sleep(_EVERY_S)
