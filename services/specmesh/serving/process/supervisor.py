"""Several workers behind one port: a parent process that starts them, and restarts those that die.

Each worker is a whole server process, forked from the parent after its imports, and listens on the
same port (SO_REUSEPORT): the kernel gives each connection to one of them. The parent holds the port
without listening, and does nothing but wait:

- a worker that dies is started again, immediately at first, and then with a backoff until it serves
  for a while;
- if a worker fails before any has served, as with a bad setting, all are ended, and its exit status
  becomes that of the parent;
- SIGTERM and SIGINT are passed on, as often as they come, and SIGHUP if it is the first. The parent
  ends after its workers. Workers heed only the parent, since service managers signal every process
  of a service, and terminals a whole group: what came twice would break calls off;
- a parent that is killed takes its workers with it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from typing import Generic, NoReturn, TypeVar

from specmesh.serving.end_signals import end_signals, insists
from specmesh.serving.process import logging as json_logging
from specmesh.serving.process.life_cycle import ALONE, Supervision
from specmesh.serving.settings import WorkersSettings
from specmesh.serving.startup import CannotStart, cannot_listen

log = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 10.0
STABLE_SECONDS = 30.0
"""A worker that has lived so long, and served, is started again without a backoff."""
KILLED_STATUS = 128
"""Added to a signal's number, this is the exit status of a worker that the signal has ended."""

_PR_SET_PDEATHSIG = 1
_ENDING = frozenset(end_signals())
_AWAITED = _ENDING | {signal.SIGCHLD}
_PASSED_ON = signal.SIGUSR1
"""The signal that a worker gets in place of these."""

Settings = TypeVar("Settings", bound=WorkersSettings)
Work = Callable[[Settings, Supervision], int]
"""Serves with the given settings until the process is told to stop, and returns its exit status."""


def supervise(settings: Settings, role: str, work: Work[Settings]) -> int:
    """Run ``work`` in as many processes as there are to be workers, in this one if there is to be
    one; return the exit status."""
    if settings.workers == 1:
        return work(settings, ALONE)
    json_logging.configure(settings.log_level, role, settings.name)
    try:
        held = _reserve(settings.host, settings.port)
        probes = None if settings.probe_at is None else _reserve(*settings.probe_at)
    except CannotStart as error:
        log.error("cannot start", extra={"reason": str(error)})
        return 1
    with held:
        port = held.getsockname()[1]
        probe_port = None if probes is None else probes.getsockname()[1]
        status = _Supervisor(
            [settings.of_worker(number, port, probe_port) for number in range(settings.workers)],
            work,
        ).run()
    if probes is not None:
        probes.close()
    log.info("stopped", extra={"exit_status": status})
    return status


class _WorkerProcess:
    """A process that runs ``work``."""

    def __init__(self, number: int, settings: Settings, work: Work[Settings]) -> None:
        self.number = number
        self.began = time.monotonic()
        self._served, serves = os.pipe()
        os.set_blocking(self._served, False)
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            supervision = Supervision((_PASSED_ON,), lambda: _tell(serves))
            _become(parent, lambda: work(settings, supervision))
        os.close(serves)
        self.has_served = False

    def look(self) -> bool:
        """Return whether the worker has ever served."""
        if not self.has_served:
            try:
                self.has_served = bool(os.read(self._served, 1))
            except BlockingIOError:
                return False
        return self.has_served

    def exit_status(self) -> int | None:
        """Return the exit status of a worker that has ended, once; None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        self.look()
        os.close(self._served)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else KILLED_STATUS - code


class _Supervisor(Generic[Settings]):
    """Runs a worker for each of ``settings``."""

    def __init__(self, settings: list[Settings], work: Work[Settings]) -> None:
        self._settings = settings
        self._work = work
        self._running: dict[int, _WorkerProcess] = {}
        self._due: dict[int, float] = dict.fromkeys(range(len(settings)), 0.0)
        """The time at which each worker that does not run is to be started."""
        self._backoff_s: dict[int, float] = dict.fromkeys(range(len(settings)), FIRST_BACKOFF_S)
        self._has_served = False
        self._status = 0
        """The first exit status other than 0 of a worker since the end began."""

    def run(self) -> int:
        """Return the exit status once all workers have ended."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        while self._running or self._due:
            self._start_due()
            told = signal.sigtimedwait(_AWAITED, self._pause_s())
            number = None if told is None else told.si_signo
            if number in _ENDING and (self._settings or insists(number)):
                self._end()
            for worker in list(self._running.values()):
                if (status := worker.exit_status()) is not None:
                    del self._running[worker.number]
                    self._ended(worker, status)
        return self._status

    def _start_due(self) -> None:
        now = time.monotonic()
        for number in [number for number, due in self._due.items() if due <= now]:
            del self._due[number]
            self._running[number] = _WorkerProcess(number, self._settings[number], self._work)

    def _pause_s(self) -> float:
        """Return the time until a worker is to be started, or for long if none is."""
        next_start = min(self._due.values(), default=time.monotonic() + 3600)
        return max(0.0, next_start - time.monotonic())

    def _end(self) -> None:
        """Have all workers end, and start none any more."""
        self._due.clear()
        self._settings = []
        for worker in self._running.values():
            os.kill(worker.pid, _PASSED_ON)

    def _ended(self, worker: _WorkerProcess, status: int) -> None:
        if not self._settings:
            self._status = self._status or status
            return
        fields = {"worker": worker.number, "exit_status": status}
        self._has_served |= worker.has_served or any(each.look() for each in self._running.values())
        if status and not self._has_served:
            log.error("giving up", extra={**fields, "reason": "no worker has served yet"})
            self._status = status
            self._end()
            return
        backoff_s = self._backoff(worker)
        log.error("worker ended", extra={**fields, "restart_seconds": backoff_s})
        self._due[worker.number] = time.monotonic() + backoff_s

    def _backoff(self, worker: _WorkerProcess) -> float:
        """Return the time after which to start the worker again, which doubles each time."""
        if worker.has_served and time.monotonic() - worker.began >= STABLE_SECONDS:
            self._backoff_s[worker.number] = FIRST_BACKOFF_S
        backoff_s = self._backoff_s[worker.number]
        self._backoff_s[worker.number] = min(2 * backoff_s, LONGEST_BACKOFF_S)
        return backoff_s


def _reserve(host: str, port: int) -> socket.socket:
    """Bind the port, any free one for 0, for sockets that share it. Raises ``CannotStart`` if a
    server listens there already, even if that would share it too: calls would go to either."""
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with closing(socket.socket(family, socket.SOCK_STREAM)) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(address)
            address = alone.getsockname()
        shared = socket.socket(family, socket.SOCK_STREAM)
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        shared.bind(address)
    except OSError as error:
        raise cannot_listen(host, port, error) from error
    return shared


def _tell(pipe: int) -> None:
    os.write(pipe, b"\n")


def _become(parent: int, work: Callable[[], int]) -> NoReturn:
    """Run ``work`` in a process that was just forked, and end the process."""
    status = 1
    try:
        # The kernel kills the worker when the parent ends, in whichever way.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            for number in _ENDING:
                signal.signal(number, lambda *_: None)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
            status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
