"""Services that a nursery forks, each used like a ``subprocess.Popen``."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from tests.nursery import MAX_MESSAGE_BYTES

NURSERY = Path(__file__).with_name("nursery.py")
IMPORT_SECONDS = 90.0


class Nursery:
    """Runs ``nursery.py``, which ends with this process, and its services with it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(IMPORT_SECONDS)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(NURSERY), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment,
            )

    def start(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> Forked:
        """``python -m MODULE ARGUMENT...``, whose output and errors come in one pipe."""
        mine, theirs = os.pipe()
        try:
            with open(os.devnull, "rb") as nothing:
                streams = (nothing.fileno(), theirs, theirs)
                child = self.fork(module, arguments, environment, streams)
        finally:
            os.close(theirs)
        child.stdout = os.fdopen(mine, encoding="utf-8")
        return child

    def fork(
        self,
        program: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
    ) -> Forked:
        """A module, or a script by its path, with descriptors for its standard streams."""
        fields = {"program": program, "arguments": arguments, "environment": dict(environment)}
        return Forked(self, self._ask(fields, *streams))

    def exit_status(self, pid: int) -> int:
        """Of a process that has ended, as ``Popen.returncode`` has it."""
        return self._ask({"ended": pid})

    def close(self) -> None:
        """End it, and with it what it has forked."""
        self._socket.close()
        self._process.wait(IMPORT_SECONDS)

    def _ask(self, fields: Mapping[str, Any], *descriptors: int) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(fields).encode()], descriptors)
            answer = self._socket.recv(MAX_MESSAGE_BYTES)
        assert answer, "the nursery has ended"
        return int(json.loads(answer))


class Forked:
    """A process that its nursery has forked."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self._handle = os.pidfd_open(pid)
        self._status: int | None = None
        self._reaping = threading.Lock()
        self.pid = pid
        self.stdout: TextIO | None = None

    def fileno(self) -> int:
        """A descriptor that can be read when it has ended, until ``wait`` has told how."""
        return self._handle

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; harmless when it has ended."""
        if self._status is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Its exit status once it has ended; raises TimeoutExpired."""
        with self._reaping:
            if self._status is None:
                ended, _, _ = select.select([self._handle], [], [], timeout)
                if not ended:
                    raise subprocess.TimeoutExpired(f"forked {self.pid}", timeout)
                self._status = self._nursery.exit_status(self.pid)
                os.close(self._handle)
            return self._status


@cache
def nursery() -> Nursery:
    """The one of this process, begun when it is first asked for."""
    started = Nursery(surroundings())
    atexit.register(started.close)
    return started


def surroundings() -> dict[str, str]:
    """The environment, without what would set a service up, and with one thread to compute on."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "SPECMESH_", "REDIS_"))
    }
    return {**inherited, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
