"""The runner of commands' coroutines, which turns errors into one line, or JSON, and a status."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from typing import Any

import typer

from specmesh.cli.answers.request import flag_of
from specmesh.cli.diagnosis import diagnose
from specmesh.cli.exit_status import ExitStatus, status_of
from specmesh.cli.local.process import StartError
from specmesh.client import DeadlineExceeded, InvalidRequest, SpecmeshError, Tls, Unavailable
from specmesh.serving.end_signals import end_signals, insists


def run(
    work: Coroutine[Any, Any, int],
    *,
    json_errors: bool = False,
    targets: Sequence[str] = (),
    tls: Tls | None = None,
) -> None:
    """Run ``work``, which calls ``targets``, to its end and exit with the status it returns.

    A SpecmeshError, a StartError, or a missing optional package is printed as one line on standard
    error. With ``json_errors`` a SpecmeshError is printed as an object on standard output, where a
    program expects the result.
    """
    try:
        status = asyncio.run(work)
    except SpecmeshError as error:
        status, explained = explain(error, targets, tls)
        if json_errors:
            typer.echo(json.dumps({"error": as_json(error)}))
        else:
            typer.echo(f"specmesh: {explained}", err=True)
    except StartError as error:
        typer.echo(f"specmesh: {error}", err=True)
        status = ExitStatus.FAILED
    except ModuleNotFoundError as error:
        advice = "pip install 'specmesh[local]'"
        typer.echo(f"specmesh: {error.name} is not installed: {advice}", err=True)
        status = ExitStatus.FAILED
    except KeyboardInterrupt:
        status = ExitStatus.INTERRUPTED
    raise typer.Exit(status)


def explain(
    error: SpecmeshError, targets: Sequence[str] = (), tls: Tls | None = None
) -> tuple[ExitStatus, str]:
    """Return the exit status for ``error``, raised by a call to ``targets``, and a line about it.

    If no target could be reached, this function connects once more to find out why.
    """
    status, message = status_of(error), _message(error)
    if error.retry_after_s is not None:
        message += f" (try again in {error.retry_after_s:g} s)"
    elif isinstance(error, Unavailable) and not error.reason and targets:
        if found := diagnose(targets, tls):
            status, message = found.status, found.message
    elif error.reason == "NO_CHAT_TEMPLATE":
        message += (
            " (set one by --chat-template FILE of 'specmesh up' or of the verifiers, or use "
            "'specmesh generate')"
        )
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    reason = f" [{error.reason}]" if error.reason else ""
    return status, f"{message}{notes}{reason}"


def _message(error: SpecmeshError) -> str:
    """Return the mesh's message, with command-line options in place of request fields."""
    if isinstance(error, InvalidRequest) and error.field_violations:
        return "; ".join(
            f"{flag_of(violation.field)}: {violation.description}"
            for violation in error.field_violations
        )
    if isinstance(error, DeadlineExceeded) and not error.reason:
        return "the timeout has expired"
    return str(error)


def as_json(error: SpecmeshError) -> dict[str, Any]:
    """Return the machine-readable parts of ``error``."""
    violations = error.field_violations if isinstance(error, InvalidRequest) else ()
    return {
        "code": error.code.name,
        "reason": error.reason,
        "message": str(error),
        "metadata": error.metadata,
        "retry_after_s": error.retry_after_s,
        "field_violations": [asdict(violation) for violation in violations],
    }


async def until_signalled(work: Coroutine[Any, Any, int], kill: Callable[[], None]) -> int:
    """Run ``work``; the first of ``end_signals`` cancels it, later ones call ``kill``.

    Returns the result of ``work``, or INTERRUPTED if it was cancelled.
    """
    task = asyncio.create_task(work)
    received: list[signal.Signals] = []

    def receive(number: signal.Signals) -> None:
        received.append(number)
        if len(received) == 1:
            task.cancel()
        elif insists(number):
            kill()

    loop = asyncio.get_running_loop()
    signals = end_signals()
    for number in signals:
        loop.add_signal_handler(number, receive, number)
    try:
        return await task
    except asyncio.CancelledError:
        return ExitStatus.INTERRUPTED
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
