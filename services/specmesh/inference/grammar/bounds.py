"""Bounds of numbers in schemas that the engine can't hold an answer to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import ceil, floor
from typing import Any

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar, GrammarKind

MAX_BOUND = 2**53
"""The engine rounds bounds to float64."""
MAX_INTEGER = 2**63 - 1
"""As the maximum of integers it is exact: it is the engine's own, to which larger ones fall."""

_Bounds = list[tuple[float, bool]]
"""Each with whether it is exclusive."""
_EMBEDDED = re.compile(r"%json\s*")
_NOTES = frozenset(
    {"$schema", "$id", "$defs", "definitions", "title", "description", "default", "examples"}
)
_REFERENCES = frozenset({"$ref", "$dynamicRef", "anyOf", "oneOf"})
_COMBINED = frozenset({"allOf", "patternProperties"})


def check_bounds(grammar: Grammar) -> None:
    """Refuse bounds beyond ``MAX_BOUND``, and an exclusive whole number less than 1 from the bound
    on the other side: the engine allows it. Raises ``InvalidField``, which names the kind."""
    schemas = [each for schema in _sources(grammar) for each in _objects(schema)]
    for schema in schemas:
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            is_exact = schema.get("type") == "integer" and schema.get(name) == MAX_INTEGER
            if abs(_number(schema, name) or 0) > MAX_BOUND and not (is_exact and name == "maximum"):
                raise InvalidField(grammar.kind, f"{name} must lie within -2^53 and 2^53")
    # What applies to one number is known only where schemas do not add to each other.
    together = [schemas] if any(map(_is_combined, schemas)) else [[each] for each in schemas]
    for group in together:
        lows = [bound for schema in group for bound in _bounds(schema, "inimum")]
        highs = [bound for schema in group for bound in _bounds(schema, "aximum")]
        if _allows_excluded(lows, highs):
            reason = "a whole number that is excluded must be at least 1 from the other bound"
            raise InvalidField(grammar.kind, reason)


def _allows_excluded(lows: _Bounds, highs: _Bounds) -> bool:
    above = {floor(high) for high, _ in highs if high % 1}
    below = {ceil(low) for low, _ in lows if low % 1}
    return any(is_exclusive and low in above for low, is_exclusive in lows) or any(
        is_exclusive and high in below for high, is_exclusive in highs
    )


def _bounds(schema: dict[str, Any], end: str) -> _Bounds:
    exclusive = f"exclusiveM{end}"
    given = [(_number(schema, f"m{end}"), schema.get(exclusive) is True)]  # True: as in draft 4
    given.append((_number(schema, exclusive), True))
    return [(number, is_exclusive) for number, is_exclusive in given if number is not None]


def _number(schema: dict[str, Any], name: str) -> float | None:
    value = schema.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_combined(schema: dict[str, Any]) -> bool:
    """Return whether another schema may apply to the same number as this one or a part of it."""
    names = schema.keys() - _NOTES
    return bool(names & _COMBINED) or (len(names) > 1 and bool(names & _REFERENCES))


def _sources(grammar: Grammar) -> Iterator[Any]:
    """Yield the schemas of a grammar; the compiler tells of those that can't be read."""
    if grammar.kind is GrammarKind.JSON_SCHEMA:
        yield json.loads(grammar.text)
    elif grammar.kind is GrammarKind.EBNF:
        for begin in _EMBEDDED.finditer(grammar.text):
            try:
                yield json.JSONDecoder().raw_decode(grammar.text, begin.end())[0]
            except ValueError:
                continue


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _objects(each)
