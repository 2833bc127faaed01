"""Standard input, whose text is always UTF-8, regardless of the locale."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import typer


def read_input() -> str:
    """Read all of standard input. Raises BadParameter if it is closed, can't be read or is not
    UTF-8."""
    with _failures_told():
        return _decoded(standard_input().read())


def input_lines() -> Iterator[str]:
    """Yield lines of standard input without line ends. Raises BadParameter if it is closed or can't
    be read, and for a line that is not UTF-8."""
    with _failures_told():
        for line in standard_input():
            yield _decoded(line).rstrip("\r\n")


def standard_input() -> BinaryIO:
    """Return the bytes of standard input. Raises BadParameter if it is closed, as by ``<&-``."""
    if sys.stdin is None:
        raise typer.BadParameter("standard input is closed")
    return sys.stdin.buffer


@contextmanager
def _failures_told() -> Iterator[None]:
    """Raise BadParameter if the block can't read standard input; otherwise the error would count as
    one of standard output, since it names no file either."""
    try:
        yield
    except OSError as error:
        raise typer.BadParameter(f"cannot read standard input: {error.strerror}") from None


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = data[error.start]
        raise typer.BadParameter(
            f"not UTF-8: byte {error.start} is {wrong:#04x}", param_hint="standard input"
        ) from None
