"""Standard input as text. It is UTF-8, whatever the locale says."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import typer


def read_input() -> str:
    """All of it. Raises BadParameter for what is not UTF-8."""
    return _decoded(sys.stdin.buffer.read())


def input_lines() -> Iterator[str]:
    """Line by line, without the line ends. Raises BadParameter for one that is not UTF-8."""
    return (_decoded(line).rstrip("\r\n") for line in sys.stdin.buffer)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = data[error.start]
        raise typer.BadParameter(
            f"it is not UTF-8: byte {error.start} is {wrong:#04x}", param_hint="standard input"
        ) from None
