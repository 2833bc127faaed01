"""Graceful shutdown: finish running requests, refuse new ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from specmesh.serving.errors import UnavailableStatus
from specmesh.serving.rpc.observed_request import ObservedRequest


class RequestGate:
    """Counts requests being answered; once closed, refuses new ones with reason DRAINING.

    gRPC's own ``stop`` refuses calls without a reason, and waits for idle open calls, which never
    end.
    """

    def __init__(self) -> None:
        self.num_running = 0
        """The number of requests being answered."""
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def admit(self, request: ObservedRequest) -> Iterator[None]:  # noqa: ARG002
        """Count the request while it is answered. Raises ``UnavailableStatus`` once closed."""
        if self._closed:
            raise UnavailableStatus("DRAINING", "this replica is shutting down")
        self.num_running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.num_running -= 1
            if not self.num_running:
                self._idle.set()

    async def close(self, timeout_s: float) -> int:
        """Refuse new requests, wait up to ``timeout_s`` for running ones, and return the number of
        those that still run."""
        self._closed = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            pass
        return self.num_running
