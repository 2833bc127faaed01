"""The filters of ``specmesh trace list`` as URL parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeVar

import typer

from specmesh.cli.trace.options import since_s
from specmesh.traces.store.query import Order, Query
from specmesh.traces.summary import Outcome

MAX_TRACES = 10_000
DEFAULT_TRACES = 1_000

_Number = TypeVar("_Number", int, float)
_Name = TypeVar("_Name", bound=StrEnum)


class BadFilter(ValueError):
    """A parameter that is unknown or out of range."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field


def query_from(parameters: Mapping[str, str]) -> Query:
    """Build the query of ``parameters``, ignoring empty ones. Raises BadFilter."""
    given = {name: text.strip() for name, text in parameters.items() if text.strip()}
    read: dict[str, tuple[str, Callable[[str], object]]] = {
        "slower_than": ("min_ms", _number(float, 0, float("inf"))),
        "outcome": ("outcome", _one_of(Outcome)),
        "strategy": ("strategy", str),
        "acceptance_below": ("acceptance_below", _number(float, 0, 1)),
        "session": ("session", str),
        "node": ("node", str),
        "since": ("since_s", _since),
        "incomplete": ("incomplete", _flag),
        "internal": ("internal", _flag),
        "order": ("order", _one_of(Order)),
        "limit": ("limit", _number(int, 1, MAX_TRACES)),
    }
    wanted: dict[str, object] = {"limit": DEFAULT_TRACES}
    for name, text in given.items():
        if name not in read:
            raise BadFilter(name, f"unknown; the filters are {', '.join(read)}")
        field, reader = read[name]
        try:
            wanted[field] = reader(text)
        except ValueError as error:
            raise BadFilter(name, str(error)) from error
    return Query(**wanted)  # type: ignore[arg-type]


def _number(kind: Callable[[str], _Number], low: float, high: float) -> Callable[[str], _Number]:
    def read(text: str) -> _Number:
        try:
            value = kind(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
        if not low <= value <= high:
            raise ValueError(f"{text} is not between {low:g} and {high:g}")
        return value

    return read


def _one_of(names: type[_Name]) -> Callable[[str], _Name]:
    def read(text: str) -> _Name:
        try:
            return names(text)
        except ValueError:
            raise ValueError(f"{text!r} is not one of {', '.join(names)}") from None

    return read


def _flag(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _since(text: str) -> float | None:
    try:
        return since_s(text)
    except typer.BadParameter as error:
        raise ValueError(error.message) from error
