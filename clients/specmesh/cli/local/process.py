"""One process of a local mesh."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from specmesh.cli.local import launcher
from specmesh.cli.local.logs import Alarms, LogFile, refusal, tail

PORT = "{port}"
"""Placeholder in a command for the port to listen on: 0 (any free one) at the first start, and at
each restart the same port as before, because peers know it."""

_NUM_TAIL_LINES = 20
_LEAST_SHARE = 0.001
"""Share of a core below which a start stands still. The housekeeping of an idle server takes half
of it, and to look again and again for a file that another process fetches, four times as much."""
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A process to run. ``ready`` returns the address in the output line that says that it serves,
    and None for other lines."""

    name: str
    command: tuple[str, ...]
    ready: Callable[[str], str | None]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables in addition to this process's own."""
    cores: frozenset[int] = frozenset()
    """Cores on which it runs; empty means all."""
    niceness: int = 0
    """Its niceness, from 0 to 19: the higher, the further other processes go before it."""


class StartError(Exception):
    """A process ended, or stood still, before it served."""


class MissingPackage(StartError):
    """A process could not start because a package is not installed."""


def missing_package(name: str, output: str) -> str | None:
    """Return an error message if ``output`` shows that the process ``name`` lacks a package."""
    missing = _MISSING.search(output)
    return f"{name} needs {missing[1]}: pip install 'specmesh[local]'" if missing else None


class Process:
    """A running process, made by ``start``, whose whole output goes to a log file."""

    def __init__(
        self,
        spec: ProcessSpec,
        child: asyncio.subprocess.Process,
        log_file: Path,
        tell: Callable[[str], None],
    ) -> None:
        self.spec = spec
        self._alarms = Alarms(spec.name, tell)
        self._tell = tell
        self.address = ""
        self.log_file = log_file
        self._child = child
        self._refusal: str | None = None
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._copying = asyncio.create_task(self._copy_output())

    @classmethod
    async def start(
        cls,
        spec: ProcessSpec,
        directory: Path,
        timeout_s: float,
        address: str = "",
        tell: Callable[[str], None] = lambda _: None,
    ) -> Process:
        """Start a process that logs to ``directory``, and return when it serves. Raises StartError,
        also if it has used next to no processor time for ``timeout_s``: to fetch and load a model,
        or to compile kernels, may take any time.

        ``address`` is that of an earlier run, whose port is used again. ``tell`` is called with a
        line for each warning and error in the log.
        """
        port = address.rpartition(":")[2] or "0"
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-IS", launcher.__file__),
            *(str(os.getpid()), ",".join(map(str, sorted(spec.cores))), str(spec.niceness)),
            *(port if part == PORT else part for part in spec.command),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env={**os.environ, **spec.environment},
            # Ctrl-C in a terminal must reach only the supervisor, which stops processes in order.
            start_new_session=True,
        )
        process = cls(spec, child, directory / f"{spec.name}.log", tell)
        try:
            await process._become_ready(timeout_s)
        except BaseException:
            await process.stop(0)
            raise
        return process

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    async def wait(self) -> int:
        """Wait for its end and the rest of its output, and return the exit status."""
        status = await self._child.wait()
        await asyncio.wait({self._copying})
        return status

    async def stop(self, patience_s: float) -> None:
        """Send SIGTERM, then SIGKILL after ``patience_s``; does nothing if it has ended."""
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(patience_s):
                await self._child.wait()
        except TimeoutError:
            pass
        finally:
            self.kill()
            await self.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if it has ended."""
        # Not by ``send_signal``, which reaps a child that has just ended: asyncio then misses it,
        # warns, and makes up an exit status.
        if self._child.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._child.pid, number)

    def kill(self) -> None:
        """Send SIGKILL; does nothing if it has ended."""
        self.send(signal.SIGKILL)

    async def _become_ready(self, timeout_s: float) -> None:
        ended = asyncio.create_task(self.wait())
        either: set[asyncio.Future[Any]] = {self._ready, ended}
        used_s, moves = self._used_s(), True
        try:
            while moves and not any(each.done() for each in either):
                await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                before_s, used_s = used_s, self._used_s()
                # A process below it that ends may take its time out of the sum.
                moves = abs(used_s - before_s) >= _LEAST_SHARE * timeout_s
        finally:
            ended.cancel()
        if self._ready.done():
            self.address = self._ready.result()
            return
        what = (
            f"ended with status {ended.result()}"
            if ended.done()
            else f"is not ready and has used no processor time for {timeout_s:g} s"
        )
        output = tail(self.log_file, _NUM_TAIL_LINES)
        if missing := missing_package(self.spec.name, output):
            raise MissingPackage(missing)
        if self._refusal is not None:
            reason = self._refusal.removesuffix(".")
            raise StartError(f"{self.spec.name} cannot start: {reason}; its log is {self.log_file}")
        raise StartError(f"{self.spec.name} {what}; the end of {self.log_file}:\n{output}")

    def _used_s(self) -> float:
        """Return the processor time that it and the processes below it have used so far."""
        used_s = 0.0
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    times = each.cpu_times()
                    used_s += times.user + times.system
                    used_s += times.children_user + times.children_system
        return used_s

    async def _copy_output(self) -> None:
        output = self._child.stdout
        assert output is not None
        unfinished = b""
        with closing(LogFile(self.log_file, self._tell)) as log:
            while data := await output.read(1 << 16):
                log.append(data)
                *lines, unfinished = (unfinished + data).split(b"\n")
                for line in lines:
                    self._look_at(line.decode(errors="replace"))

    def _look_at(self, line: str) -> None:
        self._alarms.look_at(line, time.monotonic(), is_starting=not self._ready.done())
        if not self._ready.done():
            self._refusal = refusal(line) or self._refusal
            address = self.spec.ready(line)
            if address is not None:
                self._ready.set_result(address)
