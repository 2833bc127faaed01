"""Keeps one process running."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from specmesh.cli.local.process import Process, ProcessSpec, StartError

_FIRST_BACKOFF_S = 0.2
_LONGEST_BACKOFF_S = 10.0
_STABLE_AFTER_S = 30.0
"""Whoever lived this long gets the first backoff again."""

Launch = Callable[[ProcessSpec, str], Awaitable[Process]]


class Keeper:
    """Starts a process, and starts it anew, at the same address, whenever it dies."""

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

    async def start(self) -> str:
        """The first start; returns the address. Raises StartError."""
        self.process = await self._launch(self._spec, "")
        self._keeping = asyncio.create_task(self._keep(self.process.address))
        return self.process.address

    async def stop(self) -> None:
        """End it, politely at first."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        if self.process is not None:
            await self.process.stop(self._stop_timeout_s)
            self.process = None

    def kill(self) -> None:
        """End it at once; ``stop`` must still follow."""
        if self._keeping is not None:
            self._keeping.cancel()
        if self.process is not None:
            self.process.kill()

    async def _keep(self, address: str) -> None:
        backoff_s = _FIRST_BACKOFF_S
        while True:
            began = time.monotonic()
            if self.process is not None:
                status = await self.process.wait()
                self._report(f"{self._spec.name} died with status {status}; starting it anew")
            if time.monotonic() - began > _STABLE_AFTER_S:
                backoff_s = _FIRST_BACKOFF_S
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)
            self.process = None
            try:
                self.process = await self._launch(self._spec, address)
                self._report(f"{self._spec.name} serves again at {address}")
            except StartError as error:
                self._report(str(error))
