"""Whether the harness itself gets its share of the machine.

A proxy that waits for a core holds every link up, as no fault does. What goes wrong then says
nothing about the mesh, so it is written down.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass

from specmesh.bench.chaos.links import Links

_EVERY_S = 0.25
LATE_S = 1.0
"""Worth writing down; no fault makes the proxy as slow."""


@dataclass(frozen=True, slots=True)
class Late:
    """The proxy took ``late_s`` to answer; ``load`` is the machine's, over the last minute."""

    at_s: float
    late_s: float
    load: float


class Watch:
    """``late`` lists the times at which the proxy was late, ``longest_s`` is the worst."""

    def __init__(self, links: Links, began_s: float) -> None:
        self.late: list[Late] = []
        self.longest_s = 0.0
        self._links = links
        self._began_s = began_s

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            asked_s = time.monotonic()
            await self._links.ping()
            late_s = time.monotonic() - asked_s
            self.longest_s = max(self.longest_s, late_s)
            if late_s > LATE_S:
                self.late.append(Late(asked_s - self._began_s, late_s, os.getloadavg()[0]))
            await asyncio.sleep(_EVERY_S)
