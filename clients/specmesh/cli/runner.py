"""Runs a command's coroutine; turns errors into one line and an exit status."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import typer

from specmesh.cli.local.process import StartError
from specmesh.client import InvalidRequest, Overloaded, SpecmeshError, Unavailable

FAILED = 1
USAGE = 2
INTERRUPTED = 130


def run(work: Coroutine[Any, Any, int]) -> None:
    """Run ``work`` to its end and exit with the status it returns.

    Exits with USAGE for an invalid request, and with FAILED for any other SpecmeshError, a
    StartError, or a missing package that only some commands need.
    """
    try:
        status = asyncio.run(work)
    except SpecmeshError as error:
        typer.echo(f"specmesh: {explain(error)}", err=True)
        status = USAGE if isinstance(error, InvalidRequest) else FAILED
    except StartError as error:
        typer.echo(f"specmesh: {error}", err=True)
        status = FAILED
    except ModuleNotFoundError as error:
        advice = "pip install 'specmesh[local]'"
        typer.echo(f"specmesh: {error.name} is not installed: {advice}", err=True)
        status = FAILED
    except KeyboardInterrupt:
        status = INTERRUPTED
    raise typer.Exit(status)


def explain(error: SpecmeshError) -> str:
    """One line that explains ``error`` to the user."""
    message = str(error)
    if isinstance(error, InvalidRequest) and error.field_violations:
        message = "; ".join(
            f"{violation.field}: {violation.description}" for violation in error.field_violations
        )
    elif isinstance(error, Overloaded) and error.retry_after_s is not None:
        message += f" (try again in {error.retry_after_s:g} s)"
    elif isinstance(error, Unavailable):
        message += " (is a mesh up? 'specmesh up' starts one here)"
    reason = f" [{error.reason}]" if error.reason else ""
    return f"{message}{reason}"


async def until_signalled(work: Coroutine[Any, Any, int], kill: Callable[[], None]) -> int:
    """Run ``work``; the first SIGINT or SIGTERM cancels it, a second one calls ``kill``.

    Returns what ``work`` returns, INTERRUPTED if it was cancelled.
    """
    task = asyncio.create_task(work)
    received = []

    def receive() -> None:
        received.append(True)
        if len(received) == 1:
            task.cancel()
        else:
            kill()

    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, receive)
    try:
        return await task
    except asyncio.CancelledError:
        return INTERRUPTED
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
