"""Standard input as text, which is always UTF-8, regardless of the locale."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import typer


def read_input() -> str:
    """Read all of standard input. Raises BadParameter if it is not UTF-8."""
    return _decoded(sys.stdin.buffer.read())


def input_lines() -> Iterator[str]:
    """Yield lines of standard input without line ends. Raises BadParameter for one that is not
    UTF-8."""
    return (_decoded(line).rstrip("\r\n") for line in sys.stdin.buffer)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = data[error.start]
        raise typer.BadParameter(
            f"not UTF-8: byte {error.start} is {wrong:#04x}", param_hint="standard input"
        ) from None
