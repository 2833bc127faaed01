"""The words for a wrong value on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

_WORDS = {
    "float_parsing": "{input!r} is not a number",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "{input!r} is not a whole number",
    "int_parsing": "{input!r} is not a whole number",
    "less_than_equal": "must be at most {le}",
    "value_error": "{error}",
}
"""Texts by pydantic's types of errors; the others keep pydantic's own."""


@contextmanager
def plain_words() -> Iterator[None]:
    """Reword a BadParameter of the block that has pydantic's words, with which newer versions of
    Typer read values; they are for programmers."""
    try:
        yield
    except typer.BadParameter as error:
        # Not by its class: older versions of Typer come without pydantic.
        if problems := getattr(error.__cause__, "errors", None):
            error.message = _said(problems()[0], error.message)
        raise


def _said(problem: Mapping[str, Any], otherwise: str) -> str:
    words = _WORDS.get(problem["type"])
    if words is None:
        return otherwise
    return words.format(input=problem["input"], **problem.get("ctx", {}))
