"""Request bodies: received within limits, and parsed strictly as JSON."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from specmesh.gateway.errors import ApiError
from specmesh.gateway.http.hang_up import ClientGone
from specmesh.gateway.http.held import Held

MAX_VALUES = 2**19
"""Room for a prompt of half a million token ids; a longer one can be sent as text."""
MAX_CONTAINERS = 2**15
"""Lists and objects: room for 4,096 messages of three parts each."""
MAX_STRINGS = 2**16
"""Object keys included: room for those messages. Small blocks fragment the heap once they are
freed, so a larger number would cost memory for good."""
_CHARSET = re.compile(r';\s*charset="?([^";\s]*)')


async def read_body(request: Request, max_bytes: int, held: Held) -> bytes:
    """Return the body of ``request``, whose bytes count as ``held`` as soon as they arrive.

    Raises ``ApiError``: 415 unless it is JSON in UTF-8, not compressed, 413 beyond ``max_bytes``,
    before more than that is read, and 429 while the gateway holds too many bytes. Raises
    ``ClientGone``.
    """
    _check_type(request.headers)
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told[:20]) > max_bytes:
        raise _too_large(f"{max_bytes} bytes")
    read = bytearray()
    try:
        async for part in request.stream():
            if len(read) + len(part) > max_bytes:
                raise _too_large(f"{max_bytes} bytes")
            held.add(len(part))
            read += part
    except ClientDisconnect:
        raise ClientGone from None
    return bytes(read)


def _check_type(headers: Headers) -> None:
    content_type = headers.get("content-type", "").lower()
    media_type = content_type.partition(";")[0].strip()
    if media_type != "application/json":
        told = media_type[:64] or "missing"
        raise _unsupported(f"the content type must be application/json, not {told}")
    charset = _CHARSET.search(content_type)
    if charset is not None and charset[1] not in ("utf-8", "utf8", "us-ascii"):
        raise _unsupported(f"the charset of the content type must be utf-8, not {charset[1][:64]}")
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise _unsupported(f"the content-encoding must be identity, not {encoding[:64]}")


def _unsupported(message: str) -> ApiError:
    return ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message, code="unsupported_media_type")


def check_structure(body: bytes) -> None:
    """Raise ``ApiError`` for a body of more values than any valid request has.

    An empty list takes 72 bytes of memory and 3 of JSON, so parsing a small body could exhaust the
    memory. Values are counted by their separators outside of strings, which takes a few
    milliseconds per megabyte.
    """
    # Remove escaped backslashes and quotes; the quotes that remain begin and end strings.
    quoted = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if quoted.count(b'"') > 2 * MAX_STRINGS:
        raise _too_large(f"{MAX_STRINGS:,} strings")
    outside = b"".join(quoted.split(b'"')[::2])
    if outside.count(b"{") + outside.count(b"[") > MAX_CONTAINERS:
        raise _too_large(f"{MAX_CONTAINERS:,} lists and objects")
    if outside.count(b",") > MAX_VALUES:
        raise _too_large(f"{MAX_VALUES:,} values")


@dataclass(frozen=True, slots=True)
class _Fault:
    """A placeholder for a value that is not JSON, or that would be dropped silently."""

    what: str


# Shared instances, since a body can have half a million faults.
_NOT_JSON = {
    name: _Fault(f"is {name}, which JSON does not have")
    for name in ("NaN", "Infinity", "-Infinity")
}
_TOO_LARGE = _Fault("is a number beyond the range of doubles")
_TWICE = _Fault("is given twice")

_SUSPECT = (_Fault, str, list, dict)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""The only way to write half of a surrogate pair."""
_NO_TEXT = "has half of a surrogate pair, which is not valid text"


def parse_object(body: bytes) -> dict[str, object]:
    """Parse the JSON object in ``body``.

    This is stricter than Python's own parser: it refuses NaN and infinity, which JSON doesn't have,
    numbers that would become infinity, halves of surrogate pairs, and duplicate keys, of which all
    values but one would be dropped silently. Raises ``ApiError``, which names the field.
    """
    check_structure(body)
    faults: set[_Fault] = set()
    try:
        value = json.loads(
            body.decode(),
            parse_float=partial(_number, faults),
            parse_constant=partial(_constant, faults),
            object_pairs_hook=partial(_unique, faults),
        )
        fault = _first_fault(value) if faults or _SURROGATE.search(body) else None
    except RecursionError:
        raise _not_json("it is nested too deeply") from None
    except ValueError as error:  # invalid JSON or UTF-8, or a number with thousands of digits
        raise _not_json(str(error)) from None
    if not isinstance(value, dict):
        raise _not_json("it must be an object")
    if fault is not None:
        path, what = fault[0].removeprefix("."), fault[1]
        raise ApiError.invalid(path or None, f"{path[:64]!r} {what}" if path else f"a name {what}")
    return value


def _constant(faults: set[_Fault], name: str) -> _Fault:
    faults.add(_NOT_JSON[name])
    return _NOT_JSON[name]


def _number(faults: set[_Fault], digits: str) -> float | _Fault:
    value = float(digits)
    if math.isfinite(value):
        return value
    faults.add(_TOO_LARGE)
    return _TOO_LARGE


def _unique(faults: set[_Fault], pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        faults.add(_TWICE)
        found[twice] = _TWICE
    return found


def _first_fault(value: object) -> tuple[str, str] | None:
    """Return the path from ``value`` to the first fault in it, and the fault's description."""
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


def _too_large(limit: str) -> ApiError:
    message = f"the body has more than {limit}"
    return ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, code="body_too_large")
