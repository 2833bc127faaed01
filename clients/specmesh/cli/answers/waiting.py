"""Messages on standard error while an answer is silent, with the reason if one is known."""

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
    """A watch over the silence of an answer. The reader reports output by ``came``; the client
    reports broken calls by ``hooks``."""

    def __init__(self) -> None:
        self.hooks = Hooks(on_retry=self._broke, on_resume=self._broke)
        self._reason = ""
        self._silent_since = time.monotonic()
        self._is_mid_line = False

    def begin(self) -> None:
        """Restart the clock when an answer is requested."""
        self._reason = ""
        self._silent_since = time.monotonic()

    def came(self, text: str = "") -> None:
        """Record that more of the answer has arrived, of which ``text`` has been printed."""
        if text:
            self._is_mid_line = not text.endswith("\n")
        self.begin()

    def end_line(self) -> None:
        """End the line if the answer stopped in the middle of one."""
        if self._is_mid_line:
            typer.echo()
            self._is_mid_line = False

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While the block runs, print a message whenever the answer is silent for too long."""
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
                if self._silent_s < due_s - _AGAIN_S:  # something has arrived meanwhile
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
        # On a terminal, which shows both streams, the message must not follow half a line of text.
        if self._is_mid_line and sys.stdout.isatty():
            typer.echo(err=True)
            self._is_mid_line = False
        why = f": {self._reason}" if self._reason else ""
        typer.echo(f"specmesh: nothing received for {self._silent_s:.0f} s{why}", err=True)
