"""Ports for processes that are told one before they listen."""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress
from functools import cache

LOWEST, HIGHEST = 20_000, 32_000
"""Below those that connections take, one of which might have taken a port between two processes;
and a client that dials a dead server's port from that very port would reach itself."""


def free_port() -> int:
    """One that nobody listens on, and that nobody else has been or will be told in these tests."""
    while True:
        port = _untold().pop()
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@cache
def _untold() -> list[int]:
    """The share of this worker, shuffled: other runs of the tests may be under way."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ports = list(range(LOWEST + number, HIGHEST, count))
    random.SystemRandom().shuffle(ports)
    return ports
