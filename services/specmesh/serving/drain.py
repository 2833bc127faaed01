"""Ending without breaking off anybody: running calls go on, new ones are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from specmesh.serving.errors import Unavailable
from specmesh.serving.interceptors import CallInterceptor, Context, Result


class CallGate(CallInterceptor):
    """Counts running calls; once closed it refuses new ones with reason DRAINING.

    gRPC's own ``stop`` refuses without a reason and waits for health watchers, which never
    end. Must stand inside of ``ErrorInterceptor``.
    """

    def __init__(self) -> None:
        self._num_running = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def around(
        self,
        method: str,  # noqa: ARG002
        context: Context,  # noqa: ARG002
        proceed: Callable[[], Awaitable[Result]],
    ) -> Result:
        """Let the call through and count it, or refuse it."""
        if self._closed:
            raise Unavailable("DRAINING", "this replica is shutting down")
        self._num_running += 1
        self._idle.clear()
        try:
            return await proceed()
        finally:
            self._num_running -= 1
            if not self._num_running:
                self._idle.set()

    async def close(self, timeout_s: float) -> int:
        """Refuse new calls and wait for the running ones; return how many still run."""
        self._closed = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            pass
        return self._num_running
