"""The supervisor of a local mesh's processes."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from specmesh.cli.local.keeper import Keeper
from specmesh.cli.local.logs import latest_event
from specmesh.cli.local.process import Process, ProcessSpec, StartError
from specmesh.cli.silence import SECONDS_BETWEEN_LINES

TELL_AFTER_S = SECONDS_BETWEEN_LINES
"""Interval before the first progress message of a start, which may take minutes to fetch and load a
model. It spans processes that start one after another."""
LONGEST_S = 40.0
"""The interval doubles with each message, up to this."""
SOONEST_S = 1.0
"""A process is not called late before that, however long those before it took."""
EVENT_CHARS = 100
"""Longest excerpt of the latest event in a process's log."""


class Supervisor:
    """Processes that are started in order, restarted when they die, and stopped in reverse order.

    ``report`` is called with one line for each death and restart, for the progress of a long start,
    and for each warning and error that a process logs. Logs go to ``directory``. A start that has
    used no processor time for ``start_timeout_s`` is given up.
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
        self._told_at = self._began = self._started_at = time.monotonic()
        """The times of the latest message, of the first of the starts that follow one another, and
        of the end of the latest start."""

    @property
    def pids(self) -> dict[str, int]:
        """Ids of the running processes by name, in the order of their start."""
        return {process.spec.name: process.pid for process in self._running()}

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses of the running processes by name, in the order of their start."""
        return {process.spec.name: process.address for process in self._running()}

    async def start(self, *specs: ProcessSpec) -> list[str]:
        """Start some processes concurrently, and return their addresses when all serve.

        If one fails, the other starts are cancelled and StartError is raised; ``stop`` ends those
        that run.
        """
        group = [Keeper(spec, self._launch, self._stop_timeout_s, self._report) for spec in specs]
        self._groups.append(group)
        if time.monotonic() - self._started_at > SOONEST_S:  # not the next one of the same mesh
            self._began = time.monotonic()
        try:
            async with asyncio.TaskGroup() as starts:
                tasks = [starts.create_task(keeper.start(), name=keeper.name) for keeper in group]
                starts.create_task(self._tell_who_is_late(tasks, self._began))
        except* StartError as failures:
            raise failures.exceptions[0] from None
        finally:
            self._started_at = time.monotonic()
        return [task.result() for task in tasks]

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a process a signal, if it is running."""
        self._keeper(name).send(number)

    async def end_and_restart(self, name: str, number: signal.Signals, after_s: float) -> None:
        """End a process by a signal, restart it after ``after_s``, and return when it serves."""
        await self._keeper(name).end_and_restart(number, after_s)

    async def stop(self) -> None:
        """Stop all processes in reverse order; those started together stop together."""
        while self._groups:
            group = self._groups[-1]
            await asyncio.gather(*(keeper.stop() for keeper in group))
            self._groups.pop()

    def kill(self) -> None:
        """Kill all processes immediately; ``stop`` must still be called."""
        for group in self._groups:
            for keeper in group:
                keeper.kill()

    async def _tell_who_is_late(self, starts: Sequence[asyncio.Task[str]], since: float) -> None:
        """Report the latest logged event of ``starts`` while they last, and the time from ``since``
        on: that of each group would seem to run backwards."""
        began = time.monotonic()
        # A start soon after others continues their interval; a later one begins its own.
        if began - self._told_at > TELL_AFTER_S:
            self._told_at = began
        for pause_s in pauses():
            until = max(self._told_at + pause_s, began + SOONEST_S)
            remaining_s = max(0.0, until - time.monotonic())
            _, late = await asyncio.wait(starts, timeout=remaining_s)
            if not late:
                return
            self._told_at = time.monotonic()
            names = sorted(start.get_name() for start in late)
            latest = {name: latest_event(self._directory / f"{name}.log") for name in names}
            self._report(late_line(latest, self._told_at - since))

    def _keeper(self, name: str) -> Keeper:
        return next(each for group in self._groups for each in group if each.name == name)

    def _running(self) -> list[Process]:
        processes = (keeper.process for group in self._groups for keeper in group)
        return [process for process in processes if process is not None]

    async def _launch(self, spec: ProcessSpec, address: str) -> Process:
        return await Process.start(
            spec, self._directory, self._start_timeout_s, address, self._report
        )


def pauses() -> Iterator[float]:
    """Yield the intervals between the progress messages of a start, which grow."""
    pause_s = TELL_AFTER_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_S)


def late_line(latest: Mapping[str, str], seconds: float) -> str:
    """Return what is said of processes that are starting ``seconds`` after they began, given the
    ``latest`` event in each one's log. Those at the same are named together."""
    at: defaultdict[str, list[str]] = defaultdict(list)
    for name, event in latest.items():
        at[event[:EVENT_CHARS] or "nothing logged yet"].append(name)
    each = "; ".join(f"{', '.join(names)} ({event})" for event, names in at.items())
    return f"still starting after {seconds:.0f} s: {each}"
