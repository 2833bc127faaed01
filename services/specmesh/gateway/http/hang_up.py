"""Cancellation of work for a client that disconnects, or because the gateway ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from specmesh.gateway.errors import shutting_down

T = TypeVar("T")


class ClientGone(Exception):
    """The client has closed its connection, so nobody would read an answer."""


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``; if the client disconnects first, cancel it and raise
    ``ClientGone``, and ``ApiError`` 503 if the gateway breaks it off.

    The body must have been read.
    """
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait(
            {task, gone, request.state.broken_off}, return_when=asyncio.FIRST_COMPLETED
        )
        if not task.done():
            raise ClientGone if gone.done() else shutting_down()
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
