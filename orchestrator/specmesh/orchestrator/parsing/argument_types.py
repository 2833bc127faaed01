"""The types of tools' arguments, for formats that write each argument as text: whether ``5`` is
a number or a string is for the schema to say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NoReturn

from specmesh.orchestrator.parsing.schemas import (
    ALL_TYPES,
    STRING,
    ArgumentSchemas,
    resolved,
    type_of,
)

ArgumentTypes = Mapping[str, frozenset[str]]
"""The types that each argument of a tool may have; those of no known type are left out."""

_PYTHONS = {"True": "true", "False": "false", "None": "null"}
"""Python's spellings of constants, by templates that leave values to ``str``, as JSON."""


def argument_types(parameters: object) -> ArgumentTypes:
    """Return the types of the arguments under the JSON schema ``parameters``."""
    if not isinstance(parameters, dict):
        return {}
    schema = resolved(parameters, parameters)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    schemas = ArgumentSchemas(parameters)
    found = {name: schemas.types(each) for name, each in properties.items()}
    return {name: types for name, types in found.items() if types != ALL_TYPES}


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


def _refuse(constant: str) -> NoReturn:
    """Refuse the numbers that Python's JSON has beyond the standard."""
    raise ValueError(constant)
