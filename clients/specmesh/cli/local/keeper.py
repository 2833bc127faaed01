"""Keeps one process running."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

from specmesh.cli.local.process import Process, ProcessSpec, StartError

_FIRST_BACKOFF_S = 0.2
_LONGEST_BACKOFF_S = 10.0
_STABLE_AFTER_S = 30.0
"""A process that ran this long is restarted after the first backoff again."""

Launch = Callable[[ProcessSpec, str], Awaitable[Process]]


class Keeper:
    """Starts a process, and restarts it at the same address whenever it dies."""

    def __init__(
        self,
        spec: ProcessSpec,
        launch: Launch,
        stop_timeout_s: float,
        report: Callable[[str], None],
    ) -> None:
        self.process: Process | None = None
        self._spec = spec
        self._launch = launch
        self._stop_timeout_s = stop_timeout_s
        self._report = report
        self._keeping: asyncio.Task[None] | None = None
        self._restart_after_s: float | None = None
        self._restarted = asyncio.Event()

    @property
    def name(self) -> str:
        """The process's name."""
        return self._spec.name

    async def start(self) -> str:
        """Start the process; returns its address. Raises StartError."""
        self.process = await self._launch(self._spec, "")
        self._keeping = asyncio.create_task(self._keep(self.process.address))
        return self.process.address

    async def stop(self) -> None:
        """End it: SIGTERM, then SIGKILL after ``stop_timeout_s``."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        if self.process is not None:
            await self.process.stop(self._stop_timeout_s)
            self.process = None

    def kill(self) -> None:
        """Kill it at once; ``stop`` must still be called."""
        if self._keeping is not None:
            self._keeping.cancel()
        if self.process is not None:
            self.process.kill()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None:
            self.process.send(number)

    async def end_and_restart(self, number: signal.Signals, after_s: float) -> None:
        """Send it a signal that ends it, and return when a new one serves, started ``after_s``
        seconds after its end."""
        self._restart_after_s = after_s
        restarted = self._restarted
        self.send(number)
        await restarted.wait()

    async def _keep(self, address: str) -> None:
        backoff_s = _FIRST_BACKOFF_S
        while True:
            began = time.monotonic()
            if self.process is not None:
                status = await self.process.wait()
                self._report(f"{self._spec.name} died with status {status}; starting it anew")
            if time.monotonic() - began > _STABLE_AFTER_S:
                backoff_s = _FIRST_BACKOFF_S
            pause_s, self._restart_after_s = self._restart_after_s, None
            await asyncio.sleep(backoff_s if pause_s is None else pause_s)
            backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)
            self.process = None
            try:
                self.process = await self._launch(self._spec, address)
                self._report(f"{self._spec.name} serves again at {address}")
                self._restarted.set()
                self._restarted = asyncio.Event()
            except StartError as error:
                self._report(str(error))
