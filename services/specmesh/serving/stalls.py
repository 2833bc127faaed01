"""Cuts off clients that do not read what they are sent."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from specmesh.serving.errors import Unavailable

NUM_LOOKS = 4
"""How often it is looked, within the time that a message may wait."""


class Stalls:
    """Sends messages, each of which may wait ``stall_s`` for its reader.

    One timer looks after all that wait: a time-out for each would cost every message some 10
    microseconds. It counts how often it has looked, so that a process that was stopped for a
    minute has missed nothing.
    """

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._num_looks = 0
        self._since: dict[asyncio.Task[Any], int] = {}
        """At which look those who send now began to."""
        self._cut: set[asyncio.Task[Any]] = set()
        self._looks = False

    async def write(self, context: grpc.aio.ServicerContext[Any, Any], message: object) -> None:
        """Send one message. Raises ``Unavailable`` if its reader doesn't take it in time."""
        task = asyncio.current_task()
        assert task is not None
        self._since[task] = self._num_looks
        if not self._looks:
            self._look_later()
        try:
            await context.write(message)
        except asyncio.CancelledError:
            if task not in self._cut or task.uncancel():
                raise
            raise Unavailable(
                "READER_STALLED", f"a message waited {self._stall_s:g} s for its reader"
            ) from None
        finally:
            del self._since[task]
            self._cut.discard(task)

    def _look_later(self) -> None:
        self._looks = True
        asyncio.get_running_loop().call_later(self._stall_s / NUM_LOOKS, self._look)

    def _look(self) -> None:
        self._num_looks += 1
        for task, since in self._since.items():
            if self._num_looks - since > NUM_LOOKS and task not in self._cut:
                self._cut.add(task)
                task.cancel()
        self._looks = False
        if self._since:
            self._look_later()
