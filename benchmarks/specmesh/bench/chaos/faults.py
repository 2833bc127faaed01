"""The execution of a schedule of faults, with a record of when each began and ended."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from specmesh.bench.chaos.links import FAIR, Links
from specmesh.bench.chaos.mesh import ChaosMesh
from specmesh.bench.chaos.plan import Fault, FaultKind, is_link, may_go, out_of_reach
from specmesh.bench.chaos.proxy import Weather

_SLOW_STOPPED_S = 0.08
_SLOW_RUNNING_S = 0.02
_LOSS = 0.05
_RECONNECTION_S = 1.0
"""Time that other processes take to notice that one is back."""

_ENDINGS = {FaultKind.KILL: signal.SIGKILL, FaultKind.TERM: signal.SIGTERM}
_WEATHERS = {
    FaultKind.REFUSE: Weather(refuses=True),
    FaultKind.HOLE: Weather(requests_pass=False, replies_pass=False),
    FaultKind.DEAF: Weather(replies_pass=False),
    FaultKind.LOSS: Weather(loss=_LOSS),
}


@dataclass(slots=True)
class Carried:
    """A fault that was carried out, in seconds since the phase began. It ends once the victim
    serves again."""

    fault: Fault
    began_s: float
    ended_s: float | None = None


def _weather(fault: Fault) -> Weather:
    if fault.kind is FaultKind.DELAY:
        return Weather(delay_s=fault.delay_s)
    return _WEATHERS.get(fault.kind, FAIR)


class FaultInjector:
    """Carries out faults; ``carried`` lists those that have begun, in order."""

    def __init__(self, mesh: ChaosMesh, began_s: float) -> None:
        self.carried: list[Carried] = []
        self._mesh = mesh
        self._began_s = began_s

    async def carry_out(self, schedule: Sequence[Fault]) -> None:
        """Return when all faults are over; if cancelled, undo those under way first.

        A fault is skipped if earlier ones last longer than planned and too many processes would be
        unreachable at the same time.
        """
        async with asyncio.TaskGroup() as group:
            for fault in schedule:
                await asyncio.sleep(fault.at_s - self._now_s())
                if may_go(fault, self._out(), self._mesh.shape):
                    carried = Carried(fault, self._now_s())
                    self.carried.append(carried)
                    group.create_task(self._carry_out(carried))

    def _out(self) -> set[str]:
        return {out_of_reach(each.fault.victim) for each in self.carried if each.ended_s is None}

    async def _carry_out(self, carried: Carried) -> None:
        fault = carried.fault
        if is_link(fault.victim):
            await self._break_link(self._mesh.links, fault)
        elif fault.kind in _ENDINGS:
            await self._mesh.end_and_restart(fault.victim, _ENDINGS[fault.kind], fault.lasts_s)
        else:
            await self._pause(fault)
        await asyncio.sleep(_RECONNECTION_S)
        carried.ended_s = self._now_s()

    async def _break_link(self, links: Links, fault: Fault) -> None:
        await links.set(fault.victim, _weather(fault))
        if fault.kind in {FaultKind.CUT, FaultKind.REFUSE}:
            await links.cut(fault.victim)
        try:
            await asyncio.sleep(fault.lasts_s)
        finally:
            if fault.kind is FaultKind.DEAF:
                await links.cut(fault.victim)
            await links.set(fault.victim, FAIR)

    async def _pause(self, fault: Fault) -> None:
        if fault.kind is FaultKind.STOP:
            await self._stop_and_go(fault.victim, fault.lasts_s)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(fault.lasts_s):
                while True:
                    await self._stop_and_go(fault.victim, _SLOW_STOPPED_S)
                    await asyncio.sleep(_SLOW_RUNNING_S)

    async def _stop_and_go(self, victim: str, stopped_s: float) -> None:
        self._mesh.send(victim, signal.SIGSTOP)
        try:
            await asyncio.sleep(stopped_s)
        finally:
            self._mesh.send(victim, signal.SIGCONT)

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s
