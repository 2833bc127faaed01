"""The console script ``specmesh``."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys

_INTERRUPTED = 130
_CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""The errors of a standard output that is a file on a full disk, or a terminal that is gone."""


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
    except OSError as error:
        # Errors about other files have their names, or are told where these are written.
        if error.filename is not None or error.errno not in _CANNOT_WRITE:
            raise
        _give_up_output()
        sys.exit(f"specmesh: cannot write the output: {os.strerror(error.errno).lower()}")


def _give_up_output() -> None:
    """Let nothing more be written to standard output: at the exit, Python would try once more what
    could not be written, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _end_on_signals() -> None:
    """Let SIGTERM and SIGINT end the process while it imports its modules, when there is nothing to
    clean up yet. PID 1 of a container would otherwise ignore them."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
