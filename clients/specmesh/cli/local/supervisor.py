"""Starts processes, restarts those that die, and ends them all together."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from specmesh.cli.local.keeper import Keeper
from specmesh.cli.local.logs import latest_event
from specmesh.cli.local.process import Process, ProcessSpec, StartError
from specmesh.cli.silence import SECONDS_BETWEEN_LINES

TELL_AFTER_S = SECONDS_BETWEEN_LINES
"""A process may take minutes to start, to fetch or read its model: this often it is told that it
still does, whether it is one process after another that takes the time or a single one."""
EVENT_CHARS = 100
"""Of what its log says last."""


class Supervisor:
    """Starts processes in order, restarts those that die, and ends all in reverse order.

    ``report`` is called with one line for each event after the start, while a start takes long, and
    for each warning and error that a process logs.
    Logs go to ``directory``.
    """

    def __init__(
        self,
        directory: Path,
        *,
        start_timeout_s: float,
        stop_timeout_s: float,
        report: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._report = report
        self._groups: list[list[Keeper]] = []
        self._told_at = time.monotonic()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of what runs now, by name, in the order it was started."""
        return {process.spec.name: process.pid for process in self._running()}

    @property
    def addresses(self) -> dict[str, str]:
        """Where what runs now listens, by name, in the order it was started."""
        return {process.spec.name: process.address for process in self._running()}

    async def start(self, *specs: ProcessSpec) -> list[str]:
        """Start some processes at once; returns their addresses when all can be used.

        If one fails, the other starts are cancelled; ``stop`` ends the rest. Raises StartError.
        """
        group = [Keeper(spec, self._launch, self._stop_timeout_s, self._report) for spec in specs]
        self._groups.append(group)
        try:
            async with asyncio.TaskGroup() as starts:
                tasks = [starts.create_task(keeper.start(), name=keeper.name) for keeper in group]
                starts.create_task(self._tell_who_is_late(tasks))
        except* StartError as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a process a signal, if it runs."""
        self._keeper(name).send(number)

    async def end_and_restart(self, name: str, number: signal.Signals, after_s: float) -> None:
        """End a process by a signal; returns when a new one serves, started after ``after_s``."""
        await self._keeper(name).end_and_restart(number, after_s)

    async def stop(self) -> None:
        """End all processes, the last started first; those started together end together."""
        while self._groups:
            group = self._groups[-1]
            await asyncio.gather(*(keeper.stop() for keeper in group))
            self._groups.pop()

    def kill(self) -> None:
        """Kill all processes at once; ``stop`` must still be called."""
        for group in self._groups:
            for keeper in group:
                keeper.kill()

    async def _tell_who_is_late(self, starts: Sequence[asyncio.Task[str]]) -> None:
        """Report, while some of ``starts`` last, how long and what they are at."""
        began = time.monotonic()
        # What starts soon after others goes on with their silence; later it begins one of its own.
        if began - self._told_at > TELL_AFTER_S:
            self._told_at = began
        while True:
            remaining_s = self._told_at + TELL_AFTER_S - time.monotonic()
            _, late = await asyncio.wait(starts, timeout=max(0.0, remaining_s))
            if not late:
                return
            self._told_at = time.monotonic()
            for name in sorted(start.get_name() for start in late):
                latest = latest_event(self._directory / f"{name}.log")[:EVENT_CHARS]
                latest_said = f"its log says: {latest}" if latest else "its log is empty"
                so_far = f"after {self._told_at - began:.0f} s"
                self._report(f"{name} is still starting {so_far}; {latest_said}")

    def _keeper(self, name: str) -> Keeper:
        return next(each for group in self._groups for each in group if each.name == name)

    def _running(self) -> list[Process]:
        processes = (keeper.process for group in self._groups for keeper in group)
        return [process for process in processes if process is not None]

    async def _launch(self, spec: ProcessSpec, address: str) -> Process:
        return await Process.start(
            spec, self._directory, self._start_timeout_s, address, self._report
        )
