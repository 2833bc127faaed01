"""Real processes under the hand of a test: start, wait for a line, kill, drain, show logs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from tests.forks import Forked, nursery, surroundings
from tests.serving.acl import rules
from tests.tool_model import described_in

from specmesh import models
from specmesh.cli.local import launcher
from specmesh.cli.local.redis import redis_binary

REPOSITORY = Path(__file__).parents[2]
START_SECONDS = 90.0
LINE_SECONDS = 30.0
EXIT_SECONDS = 30.0
FOLLOW_SECONDS = 10.0
"""What a killed process has started ends sooner."""

Fields = dict[str, Any]


def launch(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a program, in a process group of its own."""
    # The launcher makes the kernel end the process with this one, however this one ends.
    return subprocess.Popen(
        [sys.executable, "-IS", launcher.__file__, str(os.getpid()), "", "0", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        process_group=0,
    )


class Process:
    """One running process and all that it has written, on stdout and stderr."""

    def __init__(self, name: str, child: subprocess.Popen[str] | Forked) -> None:
        self.name = name
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._child = child
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its id."""
        return self._child.pid

    @property
    def output(self) -> str:
        """Everything written so far."""
        with self._changed:
            return "".join(self._lines)

    @property
    def address(self) -> str:
        """Where it serves; blocks until it does."""
        return str(self.wait_event("serving", START_SECONDS)["address"])

    def wait_event(self, event: str, timeout_s: float = LINE_SECONDS, **fields: Any) -> Fields:
        """Block until it has logged ``event`` with these ``fields``; return the line's fields."""
        wanted = {"event": event, **fields}
        return self._wait_line(
            lambda line: wanted.items() <= _fields(line).items(), timeout_s, _fields
        )

    def wait_text(self, text: str, timeout_s: float = LINE_SECONDS) -> str:
        """Block until a line contains ``text``; return the line."""
        return self._wait_line(lambda line: text in line, timeout_s, str)

    def wait_exit(self) -> int:
        """Block until it has ended; return its exit status."""
        status = self._child.wait(EXIT_SECONDS)
        self._reader.join(EXIT_SECONDS)
        assert self._ended, f"{self.name} has ended, but not what it started"
        return status

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._child.send_signal(number)

    def kill(self) -> None:
        """End it at once, with nothing cleaned up, and wait until it is gone. What a program has
        started and does not end by itself is ended as well."""
        self._child.kill()
        self._reader.join(FOLLOW_SECONDS)
        if isinstance(self._child, subprocess.Popen) and not self._ended:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.wait_exit()
        if self._child.stdout is not None:
            self._child.stdout.close()

    def _wait_line(
        self, wanted: Callable[[str], bool], timeout_s: float, read: Callable[[str], Any]
    ) -> Any:
        def found() -> str | None:
            return next(filter(wanted, self._lines), None)

        with self._changed:
            self._changed.wait_for(lambda: found() is not None or self._ended, timeout_s)
            line = found()
            assert line is not None, f"{self.name} did not get there:\n{''.join(self._lines)}"
            return read(line)

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class Processes:
    """Starts the processes of a mesh, without waiting for them, and ends them all at its own
    end."""

    def __init__(self) -> None:
        self.started: list[Process] = []
        self._sockets = Path(tempfile.mkdtemp(prefix="specmesh-e2e-"))  # their paths must be short

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as ending:
            ending.callback(shutil.rmtree, self._sockets, ignore_errors=True)
            for process in reversed(self.started):
                ending.callback(process.kill)

    def verifier(self, *flags: str, **environment: str) -> Process:
        """A replica of the shipped target."""
        target = str(models.path(models.TARGET))
        return self.service("verifier", "--model", target, *flags, **environment)

    def drafter(self, *flags: str, **environment: str) -> Process:
        """The shipped drafter, unless ``flags`` name a model or a backend."""
        if not {"--model", "--backend"} & set(flags):
            flags = ("--model", str(models.path(models.DRAFTER)), *flags)
        return self.service("drafter", *flags, **environment)

    def orchestrator(
        self,
        verifiers: Sequence[Process],
        drafters: Sequence[Process],
        *flags: str,
        confidence: Sequence[Process] = (),
        **environment: str,
    ) -> Process:
        """An orchestrator over peers; waits until they serve."""
        peers = {"--verifiers": verifiers, "--drafters": drafters, "--confidence": confidence}
        lists = [
            part
            for flag, processes in peers.items()
            if processes
            for part in (flag, ",".join(process.address for process in processes))
        ]
        return self.service("orchestrator", *lists, *flags, **environment)

    def service(self, role: str, *flags: str, **environment: str) -> Process:
        """``python -m specmesh.ROLE``, logging on a free port."""
        arguments = ("--port", "0", *flags)
        child = nursery().start(f"specmesh.{role}", arguments, {**surroundings(), **environment})
        return self._keep(role, child)

    def scripted_verifier(self, template: str) -> Process:
        """A replica of the model that calls tools, with this chat template. Its backend is that of
        an installed package, so it is no fork."""
        folder = self._sockets / f"scripted-{len(self.started)}"
        folder.mkdir()
        described_in(folder)
        file = folder / "template.jinja"
        file.write_text(template, encoding="utf-8")
        command = (
            *(sys.executable, "-m", "specmesh.verifier", "--port", "0"),
            *("--backend", "scripted", "--chat-template", str(file)),
        )
        path = os.pathsep.join([str(folder), str(REPOSITORY)])
        return self._keep("verifier", launch(command, {**surroundings(), "PYTHONPATH": path}))

    def redis(self) -> tuple[Process, str]:
        """A Redis where everybody may do what the documents say is needed, and the user ``admin``
        all, and its URL; waits until it answers."""
        socket = self._sockets / f"{len(self.started)}.sock"
        options = {"--port": "0", "--unixsocket": str(socket), "--save": "", "--appendonly": "no"}
        everybody = ("--user", "default", "on", "nopass", "-@all", *rules("*"))
        admin = ("--user", "admin", "on", "nopass", "~*", "+@all")
        listed = (part for option in options.items() for part in option)
        command = (redis_binary(), *listed, *everybody, *admin)
        process = self._keep("redis", launch(command, surroundings()))
        process.wait_text("eady to accept connections")
        return process, f"unix://{socket}"

    def _keep(self, name: str, child: subprocess.Popen[str] | Forked) -> Process:
        process = Process(f"{name}-{len(self.started)}", child)
        self.started.append(process)
        return process


def _fields(line: str) -> Fields:
    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
