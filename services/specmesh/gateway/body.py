"""A body becomes JSON: within a limit, strictly, and nothing said twice."""

from __future__ import annotations

import json
from collections import Counter
from http import HTTPStatus
from typing import NoReturn

from starlette.requests import Request

from specmesh.gateway.errors import ApiError


async def read_object(request: Request, max_bytes: int) -> dict[str, object]:
    """The JSON object that is the body of ``request``.

    Raises ``ApiError``: 415 if it calls itself something else, 413 beyond ``max_bytes``, before
    more than that is read, and 400 for what is no JSON object.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the body must be application/json, not {media_type[:64] or 'without a type'}",
            code="unsupported_media_type",
        )
    return parse_object(await _read(request, max_bytes))


async def _read(request: Request, max_bytes: int) -> bytes:
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told[:20]) > max_bytes:
        raise _too_large(max_bytes)
    read = bytearray()
    async for part in request.stream():
        read += part
        if len(read) > max_bytes:
            raise _too_large(max_bytes)
    return bytes(read)


def parse_object(body: bytes) -> dict[str, object]:
    """The JSON object in ``body``.

    Stricter than Python's own reading: no NaN or infinity, which JSON doesn't have, no half
    characters, and no name twice in one object, of which one value would be dropped in silence.
    Raises ``ApiError``.
    """
    try:
        value = json.loads(
            body.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique
        )
        if b"\\u" in body:  # half a surrogate pair can be written so, and is no text
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise _not_json("it is nested too deeply") from None
    except ValueError as error:  # of JSON, of UTF-8, and of a number with thousands of digits
        raise _not_json(str(error)) from None
    if not isinstance(value, dict):
        raise _not_json("it must be an object")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ApiError.invalid(twice, f"{twice[:64]!r} is there twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _not_json(reason: str) -> ApiError:
    return ApiError.invalid(None, f"the body is not valid JSON: {reason}", code="invalid_json")


def _too_large(max_bytes: int) -> ApiError:
    message = f"the body has more than {max_bytes} bytes"
    return ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, code="body_too_large")
