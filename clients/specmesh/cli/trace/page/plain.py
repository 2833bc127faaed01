"""JSON that JavaScript reads without loss."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_MAX_SAFE = 2**53 - 1
"""The largest integer up to which JavaScript's numbers are exact (ECMA-262,
Number.MAX_SAFE_INTEGER)."""


def json_text(value: Any) -> str:
    """Return ``value`` as JSON, with numbers that JSON or JavaScript can't represent as strings."""
    return json.dumps(_plain(value), allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    match value:
        case bool() | str() | None:
            return value
        case int():
            return value if -_MAX_SAFE <= value <= _MAX_SAFE else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    raise TypeError(f"can't be written as JSON: {type(value)}")
