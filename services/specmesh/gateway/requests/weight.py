"""The bytes for which a request counts once it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VALUE_BYTES = 8
"""The least that each value takes beside its text: a place in a list."""
_HOLDS_MORE = (str, list, dict)


def num_bytes(asked: Mapping[str, object]) -> int:
    """Return for how many bytes ``asked`` counts, which is JSON: its texts, names included, and
    VALUE_BYTES for each name and value."""
    total = 0
    left: list[Any] = [asked]
    while left:
        each = left.pop()
        if isinstance(each, str):
            total += len(each.encode())
            continue
        members = [*each, *each.values()] if isinstance(each, dict) else each
        total += VALUE_BYTES * len(members)
        # There may be half a million numbers.
        left += [member for member in members if isinstance(member, _HOLDS_MORE)]
    return total
