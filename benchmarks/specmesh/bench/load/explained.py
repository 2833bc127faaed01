"""The one line by which a command says that its mesh can't be reached, or no longer."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.load.transports.transport import RequestFailed


async def explained(work: Coroutine[Any, Any, int]) -> int:
    """Return the exit status that ``work`` returns. If a load can't be sent at all, print the
    reason in one line on standard error, and return FAILED."""
    try:
        return await work
    except RequestFailed as failure:
        typer.echo(f"specmesh: {failure} [{failure.reason}]", err=True)
        return ExitStatus.FAILED
