"""Responses of JSON that may be long: they are written in a thread, piece by piece, since one call
of the encoder would keep the event loop from running as long as it takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

from starlette.responses import Response

PIECE = 256
"""Entries of a list that are written at once."""

DEPTH = 5
"""Levels of a reply above its long lists, at most; what is below them is written at once."""

_written = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


async def long_json(make: Callable[[], object]) -> Response:
    """Return the response with what ``make`` returns, which is called in the thread, too."""
    body = await asyncio.to_thread(lambda: "".join(_pieces(make())).encode())
    return Response(body, media_type="application/json")


def _pieces(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the JSON of ``value``, which is ``depth`` levels below the reply."""
    if isinstance(value, list) and len(value) > PIECE:
        for start in range(0, len(value), PIECE):
            yield "," if start else "["
            yield _written(value[start : start + PIECE])[1:-1]
        yield "]"
    elif depth == DEPTH:
        yield _written(value)
    elif isinstance(value, dict):
        for number, (name, each) in enumerate(value.items()):
            yield f"{',' if number else '{'}{_written(name)}:"
            yield from _pieces(each, depth + 1)
        yield "}" if value else "{}"
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield "," if number else "["
            yield from _pieces(each, depth + 1)
        yield "]" if value else "[]"
    else:
        yield _written(value)
