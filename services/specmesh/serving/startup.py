"""The error of a process that cannot start."""

from __future__ import annotations

import os


class CannotStart(Exception):
    """The process cannot work as configured; the message is for the operator."""


def cannot_listen(host: str, port: int, error: OSError) -> CannotStart:
    """Return why a process cannot listen there, and what helps."""
    # That of a host that is unknown is negative, and Python adds the address to what others say.
    is_known = error.errno is not None and error.errno > 0
    why = os.strerror(error.errno or 0) if is_known else error.strerror or str(error)
    return CannotStart(
        f"cannot listen on {host}:{port}: {why.lower()}; --host and --port choose another address"
    )
