"""JSON that messages hold as text, which unlike a protobuf Struct keeps integers and the order of
keys."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.admission.request_limits import MAX_JSON_DEPTH


def read_object(field: str, text: str) -> dict[str, Any]:
    """Return the JSON object in ``text``. Raises ``InvalidField`` for anything else, and for JSON
    that templates can't write: nested too deeply, or not valid text."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise _too_deep(field) from None
    except UnicodeEncodeError:
        raise InvalidField(field, "has half of a surrogate pair, which is not valid text") from None
    except ValueError as error:  # not JSON, or a number with thousands of digits
        raise InvalidField(field, f"is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidField(field, "must be a JSON object")
    if _is_deeper(value, MAX_JSON_DEPTH):
        raise _too_deep(field)
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    """Return whether more than ``depth`` lists and objects of ``value`` are in one another."""
    if not isinstance(value, dict | list):
        return False
    members = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(each, depth - 1) for each in members)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"it contains {constant}")


def _too_deep(field: str) -> InvalidField:
    return InvalidField(field, f"is nested more than {MAX_JSON_DEPTH} levels deep")
