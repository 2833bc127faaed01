"""The types of tools' arguments, for formats that write each argument as text: whether ``5`` is
a number or a string is for the schema to say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

STRING = "string"
ALL_TYPES = frozenset({STRING, "number", "boolean", "null", "object", "array"})
"""The types of JSON. Whole numbers are numbers."""
MAX_DEPTH = 16
"""Most schemas within each other, and references, that are followed."""

ArgumentTypes = Mapping[str, frozenset[str]]
"""The types that each argument of a tool may have; those of no known type are left out."""

_PYTHONS = {"True": "true", "False": "false", "None": "null"}
"""Python's spellings of constants, by templates that leave values to ``str``, as JSON."""
_TYPES: Mapping[type, str] = {
    str: STRING,
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
}


def argument_types(parameters: object) -> ArgumentTypes:
    """Return the types of the arguments under the JSON schema ``parameters``."""
    if not isinstance(parameters, dict):
        return {}
    schema = resolved(parameters, parameters)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    found = {name: types_under(each, parameters) for name, each in properties.items()}
    return {name: types for name, types in found.items() if types != ALL_TYPES}


def types_under(schema: object, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """Return the types that ``schema`` allows, whose references are those of ``root``; all of them
    for a schema that makes no sense."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return ALL_TYPES
    types = ALL_TYPES
    if "type" in schema:
        types &= named_types(schema["type"])
    if "const" in schema:
        types &= {type_of(schema["const"])}
    if isinstance(values := schema.get("enum"), list):
        types &= set(map(type_of, values))
    for key in ("anyOf", "oneOf"):
        if isinstance(schemas := schema.get(key), list):
            types &= frozenset().union(*(types_under(each, root, depth + 1) for each in schemas))
    if isinstance(schemas := schema.get("allOf"), list):
        for each in schemas:
            types &= types_under(each, root, depth + 1)
    if "$ref" in schema:
        types &= types_under(resolved(schema, root), root, depth + 1)
    return types or ALL_TYPES


def resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> object:
    """Return what the reference of ``schema`` leads to within ``root``, and ``schema`` itself if it
    has none; None if there is nothing."""
    found: object = schema
    for _ in range(MAX_DEPTH):
        if not isinstance(found, dict) or "$ref" not in found:
            return found
        found = _referred(found["$ref"], root)
    return None


def _referred(reference: object, root: Mapping[str, Any]) -> object:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: object = root
    for part in reference.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def type_of(value: object) -> str:
    """Return the type of a JSON value."""
    return _TYPES[type(value)]


def as_json(text: str, types: frozenset[str] = ALL_TYPES) -> str:
    """Return an argument that is written as ``text`` as JSON: a value of one of ``types`` if it is
    one, otherwise a string."""
    if types == {STRING}:
        return json_of(text)
    spelled = _PYTHONS.get(text.strip(), text.strip())
    try:
        kind = type_of(json.loads(spelled, parse_constant=_refuse))
    except (ValueError, RecursionError):
        kind = STRING
        spelled = ""
    if spelled and (kind in types or STRING not in types):
        return spelled
    return json_of(text)


def json_of(value: object) -> str:
    """Return ``value`` as JSON."""
    return json.dumps(value, ensure_ascii=False)


def named_types(kinds: object) -> frozenset[str]:
    """Return the types that the keyword ``type`` of a schema names."""
    given: Iterable[object] = kinds if isinstance(kinds, list) else [kinds]
    return frozenset("number" if each == "integer" else str(each) for each in given)


def _refuse(constant: str) -> NoReturn:
    """Refuse the numbers that Python's JSON has beyond the standard."""
    raise ValueError(constant)
