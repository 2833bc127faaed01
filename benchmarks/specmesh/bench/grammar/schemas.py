"""JSON Schemas of the kind that people give to models: records, lists, choices, nested and
recursive values. Each is drawn from its number, and its texts are short."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

Schema = Mapping[str, Any]

_RECORDS = ("person", "order", "event", "invoice", "ticket", "review", "recipe", "device", "flight")
_NAMES = (
    *("id", "name", "title", "status", "kind", "count", "price", "date", "email", "tags", "items"),
    *("owner", "active", "score", "notes", "city", "country", "version", "unit", "weight", "size"),
)
_WORDS = ("open", "closed", "new", "paid", "low", "medium", "high", "draft", "done", "none")
_PATTERNS = ("^[A-Z]{3}-[0-9]{4}$", "^[a-z]{2,8}$", r"^\d{3}$", "^#[0-9a-f]{6}$", "^v[0-9]+$")
_FORMATS = ("date", "time", "date-time", "email", "uuid", "ipv4")
_ONE_RECURSIVE_OF = 10
_ALL_REQUIRED = 0.7
_LEAVES = 0.6
_MAX_DEPTH = 2
_MAX_CHARS = 12
_MAX_ITEMS = 3


def schemas(number: int) -> list[Schema]:
    """Return ``number`` schemas, the same at every call."""
    return [_drawn(at) for at in range(number)]


def _drawn(number: int) -> Schema:
    random = Random(number)  # noqa: S311
    return _record(random) if (number + 1) % _ONE_RECURSIVE_OF else _recursive(random)


def _record(random: Random, depth: int = 0) -> dict[str, Any]:
    names = random.sample(_NAMES, random.randint(1, 5 - 2 * depth))
    record: dict[str, Any] = {
        "type": "object",
        "properties": {name: _value(random, depth) for name in names},
        "required": names if random.random() < _ALL_REQUIRED else random.sample(names, 1),
        "additionalProperties": False,
    }
    return record if depth else {"title": random.choice(_RECORDS), **record}


def _recursive(random: Random) -> Schema:
    """Return a tree of records."""
    node = {
        "type": "object",
        "properties": {
            random.choice(_NAMES[:5]): _leaf(random),
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
        },
        "additionalProperties": False,
    }
    node["required"] = list(node["properties"])  # type: ignore[call-overload]
    return {"title": "tree", "$defs": {"node": node}, "$ref": "#/$defs/node"}


def _value(random: Random, depth: int) -> dict[str, Any]:
    if depth == _MAX_DEPTH or random.random() < _LEAVES:
        return _leaf(random)
    compound: Sequence[Callable[[], dict[str, Any]]] = (
        lambda: _record(random, depth + 1),
        lambda: {"type": "array", "items": _value(random, depth + 1), "maxItems": _MAX_ITEMS},
        lambda: {"anyOf": [_value(random, depth + 1), {"type": "null"}]},
        lambda: {
            "type": "array",
            "items": {"enum": list(_WORDS[:4])},
            "minItems": 1,
            "maxItems": 2,
        },
    )
    return random.choice(compound)()


def _leaf(random: Random) -> dict[str, Any]:
    low = random.randint(0, 9)
    return random.choice(
        (
            {"type": "string", "maxLength": _MAX_CHARS},
            {"type": "string", "minLength": 2, "maxLength": _MAX_CHARS},
            {"type": "string", "pattern": random.choice(_PATTERNS)},
            {"type": "string", "format": random.choice(_FORMATS)},
            {"type": "integer", "minimum": low, "maximum": low + random.randint(1, 5000)},
            {"type": "number", "minimum": -low, "exclusiveMaximum": 1000},
            {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100},
            {"type": "boolean"},
            {"type": ["string", "null"], "maxLength": _MAX_CHARS},
            {"enum": random.sample(_WORDS, 3)},
            {"enum": [1, "two", None, True]},
            {"const": random.choice(_WORDS)},
        )
    )
