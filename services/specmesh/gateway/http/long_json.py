"""Responses of JSON, in a thread where they may be long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.responses import Response

from specmesh.gateway.json_text import pieces


def written_json(value: object) -> Response:
    """Return the response with ``value``."""
    return Response("".join(pieces(value)).encode(), media_type="application/json")


async def long_json(make: Callable[[], object]) -> Response:
    """Return the response with what ``make`` returns, which is called in the thread, too."""
    return await asyncio.to_thread(lambda: written_json(make()))
