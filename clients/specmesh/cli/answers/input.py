"""Standard input, whose text is always UTF-8, regardless of the locale."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import BinaryIO

import typer


def read_input() -> str:
    """Read all of standard input. Raises BadParameter if it is closed or not UTF-8."""
    return _decoded(standard_input().read())


def input_lines() -> Iterator[str]:
    """Yield lines of standard input without line ends. Raises BadParameter if it is closed, and for
    a line that is not UTF-8."""
    return (_decoded(line).rstrip("\r\n") for line in standard_input())


def standard_input() -> BinaryIO:
    """Return the bytes of standard input. Raises BadParameter if it is closed, as by ``<&-``."""
    if sys.stdin is None:
        raise typer.BadParameter("standard input is closed")
    return sys.stdin.buffer


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = data[error.start]
        raise typer.BadParameter(
            f"not UTF-8: byte {error.start} is {wrong:#04x}", param_hint="standard input"
        ) from None
