"""Disconnection of clients that do not read their responses."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from specmesh.serving.eager import EagerWork
from specmesh.serving.errors import UnavailableStatus

NUM_CHECKS = 4
"""The number of checks within the time that a message may wait."""


class Stalls:
    """Sends messages, each of which may wait ``stall_s`` for its reader.

    One timer checks all waiting messages, since a timeout for each would cost every message about
    10 microseconds. It counts checks instead of seconds, so that no client is cut off because this
    process was suspended for a minute.
    """

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._num_checks = 0
        self._since: dict[asyncio.Task[Any], int] = {}
        """The number of checks before each task that is sending began to send."""
        self._cut: set[asyncio.Task[Any]] = set()
        self._check_due = False

    async def write(self, context: grpc.aio.ServicerContext[Any, Any], message: object) -> None:
        """Send one message. Raises ``UnavailableStatus`` if its reader doesn't take it in time."""
        task = asyncio.current_task()
        assert task is not None
        self._since[task] = self._num_checks
        if not self._check_due:
            self._check_later()
        writing = None
        try:
            writing = EagerWork(context.write(message))
            await writing.wait()
        except asyncio.CancelledError:
            # A write that is cancelled leaks 240 bytes in gRPC
            # (github.com/grpc/grpc/issues/43360); left alone, it ends with the call anyway.
            if writing is not None and not writing.done:
                writing.go_on().add_done_callback(_retrieve)
            if task not in self._cut or task.uncancel():
                raise
            raise UnavailableStatus(
                "READER_STALLED", f"a message waited {self._stall_s:g} s for its reader"
            ) from None
        finally:
            del self._since[task]
            self._cut.discard(task)

    def _check_later(self) -> None:
        self._check_due = True
        asyncio.get_running_loop().call_later(self._stall_s / NUM_CHECKS, self._check)

    def _check(self) -> None:
        self._num_checks += 1
        for task, since in self._since.items():
            if self._num_checks - since > NUM_CHECKS and task not in self._cut:
                self._cut.add(task)
                task.cancel()
        self._check_due = False
        if self._since:
            self._check_later()


def _retrieve(writing: asyncio.Task[None]) -> None:
    # The result of a cancelled call's write is irrelevant, but asyncio would log an unread error.
    if not writing.cancelled():
        writing.exception()
