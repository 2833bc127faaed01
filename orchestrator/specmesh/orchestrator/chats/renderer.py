"""Rendering of chats in a separate process, ``sandbox.py``, started whenever there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from specmesh.orchestrator.admission.fair_pool import FairPool
from specmesh.orchestrator.chats import sandbox
from specmesh.serving.errors import InvalidArgument

MAX_WAITING = 1024
"""Most chats that wait for earlier ones, each of which takes about a millisecond."""
MOST_SECONDS = 30.0
"""Time limit of a chat; a process that takes longer hangs, and is killed."""
INHERITED = ("LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "TZ")
"""Environment variables that the process gets; the others may contain passwords."""


class ChatRenderer:
    """Renders one chat at a time."""

    def __init__(self) -> None:
        self._thread = FairPool("chat", 1, MAX_WAITING, "chats are waiting for their template")
        self._process: subprocess.Popen[bytes] | None = None
        """Used only in the pool's thread."""

    async def render(
        self,
        source: str,
        variables: Mapping[str, Any],
        max_bytes: int,
        needed: Sequence[str] = (),
    ) -> str:
        """Return what the template ``source`` renders from ``variables``. If that is longer than
        ``max_bytes`` in UTF-8, return only a part that is still longer. A template that ignores
        one of the ``needed`` variables refuses the chat.

        Raises ``InvalidArgument`` with reason CHAT_REFUSED, ``ResourceExhausted`` with reason
        OVERLOADED.
        """
        job = {
            "source": source,
            "variables": variables,
            "max_bytes": max_bytes,
            "needed": list(needed),
        }
        return await self._thread.run(self._render, job)

    async def close(self) -> None:
        """End the process after its current chat."""
        await self._thread.close()
        if self._process is not None:
            self._end(self._process)

    def _render(self, job: dict[str, Any]) -> str:
        process = self._running()
        answer = _exchange(process, job)
        if answer is None:
            status = self._end(process)
            if status != -signal.SIGPROF:
                raise RuntimeError(f"the process that renders chats ended with status {status}")
            raise _refused(f"it takes more than {sandbox.CPU_SECONDS:g} s of processor time")
        if "ignored" in answer:
            raise _ignored(answer["ignored"])
        if "text" not in answer:
            raise _refused(answer["refused"])
        return str(answer["text"])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._end(self._process)
        if self._process is None:
            self._process = _started()
        return self._process

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        """End ``process`` if it is still running; return its status."""
        self._process = None
        process.kill()
        status = process.wait()
        with suppress(BrokenPipeError), process:  # closes the pipes, even with unread data in them
            pass
        return status


def _exchange(process: subprocess.Popen[bytes], job: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer to ``job``; None if the process ended while working on it."""
    assert process.stdin is not None
    assert process.stdout is not None
    watchdog = threading.Timer(MOST_SECONDS, process.kill)
    watchdog.start()
    try:
        sandbox.write_frame(process.stdin, job)
        return sandbox.read_frame(process.stdout)
    except BrokenPipeError:
        return None
    finally:
        watchdog.cancel()


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", sandbox.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={name: os.environ[name] for name in INHERITED if name in os.environ},
        # A terminal's signals to the orchestrator, such as Ctrl-C, must not reach the process.
        start_new_session=True,
    )


def _refused(reason: str) -> InvalidArgument:
    return InvalidArgument("CHAT_REFUSED", f"the model's chat template refuses the chat: {reason}")


def _ignored(name: str) -> InvalidArgument:
    return InvalidArgument(
        "CHAT_REFUSED",
        f"the model's chat template does not show {name} to the model, so they cannot be used; "
        "serve the model with a template that does (--chat-template)",
        {"ignored": name},
    )
