"""The files that commands write at their end, checked before they begin."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import typer

from specmesh.cli.exit_status import ExitStatus

STANDARD_OUTPUT = Path("-")


def check_writable(file: Path | None, option: str | None = None) -> None:
    """Raise BadParameter if ``file`` can't be written: now, not after a long run.

    It is not opened, which would leave an empty file behind and end a reader of a named pipe.
    """
    if file is None or file == STANDARD_OUTPUT:
        return
    if not file.parent.is_dir():
        why = f"the folder {file.parent} does not exist"
    elif file.is_dir():
        why = f"{file} is a folder"
    elif not os.access(file if file.exists() else file.parent, os.W_OK):
        why = f"{file} can't be written"
    else:
        return
    raise typer.BadParameter(why, param_hint=option)


def check_different(files: Mapping[str, Path | None]) -> None:
    """Raise BadParameter if two of the options name one file, of which only one would be left."""
    given = [(option, file.resolve()) for option, file in files.items() if file is not None]
    for (first, file), (second, other) in combinations(given, 2):
        if file == other:
            raise typer.BadParameter(f"it is the file of {first}, too", param_hint=second)


@contextmanager
def writing() -> Iterator[None]:
    """End the command with the error, in a line, if a file can't be written in the block."""
    try:
        yield
    except OSError as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(ExitStatus.FAILED) from error


def writable(file: Path | None) -> Path | None:
    """Return the value of an option, whose callback this is, if it can be written."""
    check_writable(file)
    return file
