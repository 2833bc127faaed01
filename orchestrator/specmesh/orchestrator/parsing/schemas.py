"""The types of values that JSON schemas allow, as far as the writing of arguments needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Schema = Mapping[str, Any]

STRING = "string"
ALL_TYPES = frozenset({STRING, "number", "boolean", "null", "object", "array"})
"""The types of JSON. Whole numbers are numbers."""
MAX_DEPTH = 16
"""Most schemas within each other, and references, that are followed."""
MAX_PATH = 64
"""Most parts of a reference that count; JSON is not nested as deeply."""
NOTES = {
    *("title", "description", "examples", "default", "deprecated", "readOnly", "writeOnly"),
    *("$comment", "$schema", "$id"),
}
"""Keywords that allow all that is allowed without them."""
DEFINITIONS = ("$defs", "definitions")

_TYPES: Mapping[type, str] = {
    str: STRING,
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
}


class ArgumentSchemas:
    """The types that schemas with the references of ``root`` allow. The schemas must live as long
    as this.

    A schema is judged once at each depth. References make a graph of schemas, and a few hundred
    bytes are enough for more paths through it than anybody has time to follow.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._types: dict[tuple[int, int], frozenset[str]] = {}
        self._allow_all: dict[tuple[int, int], bool] = {}

    def types(self, schema: object, depth: int = 0) -> frozenset[str]:
        """Return the types that ``schema`` allows; all of them if it makes no sense."""
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return ALL_TYPES
        place = id(schema), depth
        if place not in self._types:
            self._types[place] = self._judged_types(schema, depth)
        return self._types[place]

    def allows_all(self, schema: object, depth: int = 0) -> bool:
        """Return whether ``schema`` allows all values of each type that it allows. Raises
        ValueError for a type that there is not."""
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return schema is True
        place = id(schema), depth
        if place not in self._allow_all:
            self._allow_all[place] = self._judged_all(schema, depth)
        return self._allow_all[place]

    def _judged_types(self, schema: Schema, depth: int) -> frozenset[str]:
        types = ALL_TYPES
        if "type" in schema:
            types &= named_types(schema["type"])
        if "const" in schema:
            types &= {type_of(schema["const"])}
        if isinstance(values := schema.get("enum"), list):
            types &= set(map(type_of, values))
        for key in ("anyOf", "oneOf"):
            if isinstance(schemas := schema.get(key), list):
                types &= frozenset().union(*(self.types(each, depth + 1) for each in schemas))
        if isinstance(schemas := schema.get("allOf"), list):
            for each in schemas:
                types &= self.types(each, depth + 1)
        if "$ref" in schema:
            types &= self.types(_referred(schema["$ref"], self._root), depth + 1)
        return types or ALL_TYPES

    def _judged_all(self, schema: Schema, depth: int) -> bool:
        check_type(schema)
        keys = schema.keys() - {*NOTES, *DEFINITIONS}
        if keys == {"anyOf"} and isinstance(schemas := schema["anyOf"], list):
            return all(self.allows_all(each, depth + 1) for each in schemas)
        if keys == {"$ref"}:
            return self.allows_all(_referred(schema["$ref"], self._root), depth + 1)
        return keys <= {"type"}


def resolved(schema: Schema, root: Schema) -> object:
    """Return what the reference of ``schema`` leads to within ``root``, and ``schema`` itself if it
    has none; None if there is nothing."""
    found: object = schema
    for _ in range(MAX_DEPTH):
        if not isinstance(found, dict) or "$ref" not in found:
            return found
        found = _referred(found["$ref"], root)
    return None


def _referred(reference: object, root: Schema) -> object:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: object = root
    for part in reference.split("/", MAX_PATH)[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def type_of(value: object) -> str:
    """Return the type of a JSON value."""
    return _TYPES[type(value)]


def named_types(kinds: object) -> frozenset[str]:
    """Return the types that the keyword ``type`` of a schema names."""
    given: Iterable[object] = kinds if isinstance(kinds, list) else [kinds]
    return frozenset("number" if each == "integer" else str(each) for each in given)


def check_type(schema: Schema) -> None:
    """Raise ValueError for a type that there is not, which would otherwise be taken for any."""
    if "type" in schema and not named_types(schema["type"]) <= ALL_TYPES:
        raise ValueError(f"there is no type {schema['type']!r}")
