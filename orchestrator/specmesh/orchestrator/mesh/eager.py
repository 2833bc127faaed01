"""A task that begins at once, as ``eager_start`` of Python 3.12 has it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run ``work`` up to where it first waits; the rest is a task, None if nothing is left."""
    try:
        waits_for = work.send(None)
    except StopIteration:
        return None
    return asyncio.create_task(_rest(work, waits_for))


@coroutine
def _rest(work: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    while True:
        try:
            try:
                value = yield waits_for
            except BaseException as error:  # of the task: its cancellation, too
                waits_for = work.throw(error)
            else:
                waits_for = work.send(value)
        except StopIteration:
            return
