"""The check that a file's JSON has the shape of a report."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from specmesh.load.results.report import SCHEMA, RunReport, SearchReport, SweepReport

_KINDS: dict[str, TypeAdapter[Any]] = {
    "run": TypeAdapter(RunReport),
    "sweep": TypeAdapter(SweepReport),
    "search": TypeAdapter(SearchReport),
}


def check_shape(text: str) -> dict[str, Any]:
    """Return the report in ``text``. Raises ValueError, with the field, for a value of another type
    than the report's, or one that is not finite.

    Reports of old lack fields, of which only the pages and tables that need one can tell.
    """
    try:
        report = json.loads(text)
    except RecursionError:
        raise ValueError("is not a report: its values are nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(report, dict):
        raise ValueError("is not a report: it is not a JSON object")
    kind = _KINDS.get(str(report.get("kind")))
    if kind is None or report.get("schema") != SCHEMA:
        raise ValueError(f"is not a report with schema {SCHEMA}")
    for path in _not_finite(report, ()):
        raise ValueError(f"{path} is not a finite number")
    try:
        kind.validate_json(text, strict=True)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            if each["type"] != "missing":
                raise ValueError(f"{_path(each['loc'])}: {each['msg']}") from None
    return report


def _not_finite(value: object, place: tuple[int | str, ...]) -> Iterator[str]:
    """Yield the path of each number within ``value``, which is at ``place``, that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        yield _path(place)
    elif isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in parts:
            yield from _not_finite(each, (*place, key))


def _path(place: tuple[int | str, ...]) -> str:
    return ".".join(map(str, place))
