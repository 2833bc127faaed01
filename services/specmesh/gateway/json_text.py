"""The JSON of replies, piece by piece: one call of the encoder would keep the event loop from
running as long as it takes, also in another thread."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

PIECE = 256
"""Entries of a list that are written at once."""

DEPTH = 5
"""Levels of a reply above its long lists, at most; what is below them is written at once."""

write_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class JsonText:
    """JSON that is already written, as a value in a reply that ``pieces`` writes."""

    text: str

    @classmethod
    def of_list(cls, entries: Iterable[str]) -> Self:
        """Return the list of ``entries``, each of which is JSON."""
        return cls(f"[{','.join(entries)}]")


def pieces(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the JSON of ``value``, which is ``depth`` levels below the reply."""
    if isinstance(value, JsonText):
        yield value.text
    elif isinstance(value, list) and len(value) > PIECE:
        for start in range(0, len(value), PIECE):
            yield "," if start else "["
            yield write_json(value[start : start + PIECE])[1:-1]
        yield "]"
    elif depth > DEPTH:
        yield write_json(value)
    elif isinstance(value, dict):
        for number, (name, each) in enumerate(value.items()):
            yield f"{',' if number else '{'}{write_json(name)}:"
            yield from pieces(each, depth + 1)
        yield "}" if value else "{}"
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield "," if number else "["
            yield from pieces(each, depth + 1)
        yield "]" if value else "[]"
    else:
        yield write_json(value)
