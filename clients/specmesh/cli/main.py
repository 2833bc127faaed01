"""The console script ``specmesh``."""

from __future__ import annotations

import io
import os
import signal
import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line, or say how to install the packages that it needs."""
    if sys.argv[1:2] == ["serve"]:
        _end_on_signals()
    try:
        from specmesh.cli.app import app
    except ModuleNotFoundError as error:
        sys.exit(f"specmesh: {error.name} is not installed: pip install 'specmesh[cli]'")
    except KeyboardInterrupt:  # imports take seconds on a busy machine
        sys.exit(_INTERRUPTED)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal whose encoding lacks a character of an answer shows its escape instead.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except KeyboardInterrupt:  # raised while a command still imports its modules
        sys.exit(_INTERRUPTED)


def _end_on_signals() -> None:
    """Let SIGTERM and SIGINT end the process while it imports its modules, when there is nothing to
    clean up yet. PID 1 of a container would otherwise ignore them."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
