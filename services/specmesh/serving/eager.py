"""Starts a coroutine at once, as Python 3.12 does with ``eager_start``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run ``work`` to its first wait. Returns a task for the rest, None if nothing is left."""
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
            except BaseException as error:  # thrown into the task, as by its cancellation
                waits_for = work.throw(error)
            else:
                waits_for = work.send(value)
        except StopIteration:
            return
