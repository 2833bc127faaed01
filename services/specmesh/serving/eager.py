"""Eager start of coroutines, as Python 3.12 has it with ``eager_start``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run ``work`` up to its first wait; return a task for the rest, or None if it is done."""
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
            except BaseException as error:  # thrown into the task, for example by cancellation
                waits_for = work.throw(error)
            else:
                waits_for = work.send(value)
        except StopIteration:
            return
