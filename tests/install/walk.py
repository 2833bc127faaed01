"""Says, as JSON, what ``--help`` of ``specmesh`` and of every command below it says.

Run by the Python of an environment under test. All in one process: each takes most of a second
to import the same.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator

from typer.testing import CliRunner

from specmesh.cli.app import app

Helped = tuple[tuple[str, ...], int, str, str]
"""The words of a command; its exit status, standard output and standard error."""


def walk(*path: str) -> Iterator[Helped]:
    """Must be told to do without rich, whose boxes are not for reading."""
    helped = CliRunner().invoke(app, [*path, "--help"], catch_exceptions=False)
    yield path, helped.exit_code, helped.stdout, helped.stderr
    _, _, listed = helped.stdout.partition("\nCommands:\n")
    for name in re.findall(r"^  (\S+)", listed, re.MULTILINE):
        yield from walk(*path, name)


json.dump(list(walk()), sys.stdout)
