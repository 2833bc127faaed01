"""The keeper of one process, which restarts it when it dies."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

from specmesh.cli.local.process import Process, ProcessSpec, StartError

_FIRST_BACKOFF_S = 0.2
_LONGEST_BACKOFF_S = 10.0
_STABLE_AFTER_S = 30.0
"""Run time after which a process counts as stable, so that its backoff begins again."""

Launch = Callable[[ProcessSpec, str], Awaitable[Process]]


class Keeper:
    """A process that is restarted at the same address whenever it dies."""

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
        """Start the process and return its address. Raises StartError."""
        self.process = await self._launch(self._spec, "")
        self._keeping = asyncio.create_task(self._keep(self.process.address))
        return self.process.address

    async def stop(self) -> None:
        """Stop the process: SIGTERM, then SIGKILL after ``stop_timeout_s``."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        if self.process is not None:
            await self.process.stop(self._stop_timeout_s)
            self.process = None

    def kill(self) -> None:
        """Kill the process immediately; ``stop`` must still be called."""
        if self._keeping is not None:
            self._keeping.cancel()
        if self.process is not None:
            self.process.kill()

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal, if it is running."""
        if self.process is not None:
            self.process.send(number)

    async def end_and_restart(self, number: signal.Signals, after_s: float) -> None:
        """End the process by a signal, start it again ``after_s`` seconds after its end, and return
        when it serves."""
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
                self._report(f"{self._spec.name} died with status {status}; restarting it")
            if time.monotonic() - began > _STABLE_AFTER_S:
                backoff_s = _FIRST_BACKOFF_S
            pause_s, self._restart_after_s = self._restart_after_s, None
            await asyncio.sleep(backoff_s if pause_s is None else pause_s)
            backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)
            self.process = None
            try:
                self.process = await self._launch(self._spec, address)
                self._report(f"{self._spec.name} is serving again at {address}")
                self._restarted.set()
                self._restarted = asyncio.Event()
            except StartError as error:
                self._report(str(error))
            except Exception as error:  # a lack of memory or descriptors, say, which may pass
                self._report(f"{self._spec.name} could not be started: {error}")
