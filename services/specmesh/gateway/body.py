"""A body becomes JSON: within a limit, strictly, and nothing said twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

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


@dataclass(frozen=True, slots=True)
class _Fault:
    """Stands where the body has what JSON hasn't, or a value that would be dropped in silence."""

    what: str


_SUSPECT = (_Fault, str, list, dict)
_NO_TEXT = "has half of a surrogate pair, which is no text"


def parse_object(body: bytes) -> dict[str, object]:
    """The JSON object in ``body``.

    Stricter than Python's own reading: no NaN or infinity, which JSON doesn't have, no half
    characters, and no name twice in one object, of which one value would be dropped in silence.
    Raises ``ApiError``, which names the field.
    """
    faults: list[_Fault] = []
    try:
        value = json.loads(
            body.decode(),
            parse_constant=partial(_constant, faults),
            object_pairs_hook=partial(_unique, faults),
        )
        # Half of a surrogate pair can be written so alone.
        fault = _first_fault(value) if faults or b"\\u" in body else None
    except RecursionError:
        raise _not_json("it is nested too deeply") from None
    except ValueError as error:  # of JSON, of UTF-8, and of a number with thousands of digits
        raise _not_json(str(error)) from None
    if not isinstance(value, dict):
        raise _not_json("it must be an object")
    if fault is not None:
        path, what = fault[0].removeprefix("."), fault[1]
        raise ApiError.invalid(path or None, f"{path[:64]!r} {what}" if path else f"a name {what}")
    return value


def _constant(faults: list[_Fault], name: str) -> _Fault:
    faults.append(_Fault(f"is {name}, which JSON does not have"))
    return faults[-1]


def _unique(faults: list[_Fault], pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        faults.append(_Fault("is there twice"))
        found[twice] = faults[-1]
    return found


def _first_fault(value: object) -> tuple[str, str] | None:
    """The path from ``value`` to the first fault in it, and what that is."""
    members: Iterable[tuple[int | str, object]] = ()
    if isinstance(value, _Fault):
        return "", value.what
    if isinstance(value, str):
        return None if _is_text(value) else ("", _NO_TEXT)
    if isinstance(value, list):
        members = enumerate(value)
    elif isinstance(value, dict):
        if not all(map(_is_text, value)):
            return "", _NO_TEXT
        members = value.items()
    for step, member in members:
        if isinstance(member, _SUSPECT) and (fault := _first_fault(member)):
            path, what = fault
            return (f"[{step}]" if isinstance(step, int) else f".{step}") + path, what
    return None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_json(reason: str) -> ApiError:
    return ApiError.invalid(None, f"the body is not valid JSON: {reason}", code="invalid_json")


def _too_large(max_bytes: int) -> ApiError:
    message = f"the body has more than {max_bytes} bytes"
    return ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, code="body_too_large")
