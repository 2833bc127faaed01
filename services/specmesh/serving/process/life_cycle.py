"""The life cycle of a process: start, serve, drain, stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from specmesh.serving.end_signals import end_signals, insists
from specmesh.serving.identity import expiry
from specmesh.serving.process import logging as json_logging
from specmesh.serving.process.probe_port import ProbePort
from specmesh.serving.process.resources import allow_all_descriptors
from specmesh.serving.rpc.health import Health
from specmesh.serving.settings import ProcessSettings
from specmesh.serving.startup import CannotStart
from specmesh.serving.telemetry.exporters import InvalidTelemetry, certificate_files
from specmesh.serving.telemetry.pipeline import configure
from specmesh.serving.telemetry.scrape import Scrape

log = logging.getLogger(__name__)

YOUNG_OBJECTS = 10_000
"""Objects made, less those gone, after which the young ones are searched for cycles. There are
few, but many requests hold thousands of objects for a while: the default of 700 would search them
again and again, 5 % of a busy orchestrator's time."""


class LifeCycle(Protocol):
    """A server that a process runs from its start to its end."""

    @property
    def health(self) -> Health:
        """The health of the process, which the server keeps up to date."""

    async def listen(self) -> str:
        """Open the port; return its address. Raises ``CannotStart``."""

    async def start(self) -> None:
        """Return once calls can be answered. Raises ``CannotStart``."""

    async def broken(self) -> None:
        """Return once no call can be answered any more, and log why."""

    async def leave(self) -> None:
        """Report NOT_SERVING so that new calls go elsewhere, but still answer them."""

    async def drain(self) -> None:
        """Refuse new calls, and let running ones end."""

    async def stop(self) -> None:
        """Cancel the calls that still run, and release everything."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """The signals that end a process, and the call by which it says that it serves."""

    end_signals: Sequence[signal.Signals] = field(default_factory=end_signals)
    on_serving: Callable[[], None] = lambda: None


ALONE = Supervision()
"""The supervision of a process that no supervisor of ours started."""


async def run_process(
    settings: ProcessSettings,
    role: str,
    make: Callable[[], LifeCycle],
    supervision: Supervision = ALONE,
) -> int:
    """Configure logs and telemetry, run the server that ``make`` returns, and return the exit
    status of the process.

    On SIGTERM, SIGINT or SIGHUP, or what ``supervision`` has in their place, the server leaves, and
    drains ``drain_delay_seconds`` later (status 0); on a second signal that ``insists``, the calls
    that still run are cancelled (status 1); a third one kills. A failed start and a server that
    breaks also exit with status 1, so that the process is restarted.
    """
    json_logging.configure(settings.log_level, role, settings.name)
    allow_all_descriptors()
    scrape = None if settings.metrics_at is None else Scrape()
    try:
        telemetry = configure(role, settings.name, scrape)
    except InvalidTelemetry as error:
        log.error("cannot start", extra={"reason": str(error)})
        return 1
    expiry.observe(certificate_files())
    status = 1
    try:
        server = make()
        probes = None
        if settings.probe_at is not None:
            probes = ProbePort(server.health, shares_port=settings.shares_port)
        try:
            if scrape is not None and settings.metrics_at is not None:
                _open(scrape, *settings.metrics_at)
            server.health.alive()
            if probes is not None and settings.probe_at is not None:
                await _open_probes(probes, *settings.probe_at)
            status = await _live(server, supervision, settings.drain_delay_seconds)
        finally:
            await server.stop()
            if probes is not None:
                await probes.close()
    except CannotStart as error:
        log.error("cannot start", extra={"reason": str(error)})
    except Exception:
        log.exception("failed")
    finally:
        if scrape is not None:
            await asyncio.to_thread(scrape.close)
        await asyncio.to_thread(telemetry.shutdown)
        log.info("stopped", extra={"exit_status": status})
    return status


def _open(scrape: Scrape, host: str, port: int) -> None:
    """Serve metrics from the start, even while a model is loading, until the very end."""
    try:
        address = scrape.listen(host, port)
    except OSError as error:
        raise CannotStart(
            f"cannot serve metrics on {host}:{port} (--metrics-address): {error}"
        ) from error
    log.info("metrics", extra={"address": address})


async def _open_probes(probes: ProbePort, host: str, port: int) -> None:
    """Answer probes from the start, even while a model is loading, until the very end."""
    try:
        address = await probes.listen(host, port)
    except OSError as error:
        raise CannotStart(
            f"cannot answer probes on {host}:{port} (--probe-address): {error}"
        ) from error
    log.info("probes", extra={"address": address})


async def _live(server: LifeCycle, supervision: Supervision, drain_delay_s: float) -> int:
    signals = _Signals(supervision.end_signals)
    began = time.monotonic()
    address = await server.listen()
    log.info("starting", extra={"address": address})
    serves, broke = False, False
    if await _ends_before(signals.first, server.start()):
        # Objects loaded by now, such as large libraries, stay: exclude them from later collections.
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        seconds = round(time.monotonic() - began, 3)
        log.info("serving", extra={"address": address, "start_seconds": seconds})
        supervision.on_serving()
        broke = await _ends_before(signals.first, server.broken())
        serves = not broke
    going = _go(server, drain_delay_s if serves else 0.0)
    drained = await _ends_before(signals.second, going)
    return 0 if drained and not broke else 1


async def _go(server: LifeCycle, delay_s: float) -> None:
    """Leave, wait until callers have had time to notice, and drain."""
    await server.leave()
    if delay_s:
        log.info("leaving", extra={"seconds": delay_s})
        await asyncio.sleep(delay_s)
    log.info("draining")
    await server.drain()


class _Signals:
    """Events for the first and second of the signals ``numbers``; a third has no handler, and
    kills."""

    def __init__(self, numbers: Sequence[signal.Signals]) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self._numbers = numbers
        loop = asyncio.get_running_loop()
        for number in numbers:
            loop.add_signal_handler(number, self._receive, number)

    def _receive(self, number: signal.Signals) -> None:
        if not self.first.is_set():
            self.first.set()
            return
        if not insists(number):
            return
        self.second.set()
        loop = asyncio.get_running_loop()
        for each in self._numbers:
            loop.remove_signal_handler(each)


async def _ends_before(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run ``work`` until it ends (return True, or raise its error) or ``event`` is set, which
    cancels it (return False)."""
    task = asyncio.create_task(work)
    waiter = asyncio.create_task(event.wait())
    await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    if task.done():
        task.result()
        return True
    task.cancel()
    await asyncio.wait({task})
    return False
