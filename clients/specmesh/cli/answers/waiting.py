"""Says on standard error what an answer waits for, so that no wait is silent."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import typer

from specmesh.cli.silence import SECONDS_BETWEEN_LINES
from specmesh.client import BrokenCall, Hooks

_SILENT_S = 3.0
_AGAIN_S = SECONDS_BETWEEN_LINES


class Waiting:
    """Watches an answer, which ``came`` is told of; ``hooks`` are for the client that asks."""

    def __init__(self) -> None:
        self.hooks = Hooks(on_retry=self._broke, on_resume=self._broke)
        self._reason = ""
        self._silent_since = time.monotonic()
        self._is_mid_line = False

    def begin(self) -> None:
        """Note that an answer has been asked for."""
        self._reason = ""
        self._silent_since = time.monotonic()

    def came(self, text: str = "") -> None:
        """Note that more of the answer has come; ``text`` of it stands on the terminal now."""
        if text:
            self._is_mid_line = not text.endswith("\n")
        self.begin()

    def end_line(self) -> None:
        """End the line that the answer stopped in, if it did in one."""
        if self._is_mid_line:
            typer.echo()
            self._is_mid_line = False

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Speak up, while the block lasts, when nothing has come for a while."""
        self.begin()
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.wait({watch})

    async def _watch(self) -> None:
        due_s = _SILENT_S
        while True:
            remaining_s = due_s - self._silent_s
            if remaining_s > 0:
                await asyncio.sleep(remaining_s)
                if self._silent_s < due_s - _AGAIN_S:  # something has come meanwhile
                    due_s = _SILENT_S
                continue
            self._say()
            due_s += _AGAIN_S

    @property
    def _silent_s(self) -> float:
        return time.monotonic() - self._silent_since

    def _broke(self, call: BrokenCall) -> None:
        is_news = str(call.error) != self._reason
        self._reason = str(call.error)
        if is_news and self._silent_s >= _SILENT_S:
            self._say()

    def _say(self) -> None:
        # Where both go to a terminal, the line must not stand behind half a line of the answer.
        if self._is_mid_line and sys.stdout.isatty():
            typer.echo(err=True)
            self._is_mid_line = False
        why = f": {self._reason}" if self._reason else ""
        typer.echo(f"specmesh: nothing has come for {self._silent_s:.0f} s{why}", err=True)
