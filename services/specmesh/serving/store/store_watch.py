"""A check of Redis's configuration, before sessions are stored and periodically afterwards.

A failover replaces the primary by a server that may be configured differently, and settings can
change while a server runs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from specmesh.serving.startup import CannotStart
from specmesh.serving.store.redis_durability import Finding, Severity
from specmesh.serving.store.stored_session import StoreUnavailable

log = logging.getLogger(__name__)

PERIOD_S = 10.0


class Judged(Protocol):
    """A store that reports findings about its durability."""

    async def durability(self) -> tuple[Finding, ...]:
        """Return findings about the current server's durability. Raises StoreUnavailable."""
        ...


class StoreWatch:
    """Logs new findings about a store's durability."""

    def __init__(self, store: Judged, period_s: float = PERIOD_S) -> None:
        self._store = store
        self._period_s = period_s
        self._known: tuple[Finding, ...] = ()
        self._watching: asyncio.Task[None] | None = None

    async def start(self, *, refuses: bool) -> None:
        """Check the store, and start to check it periodically until ``stop``.

        Raises ``CannotStart`` if ``refuses`` and the store loses sessions while everything works.
        An unavailable store is checked once it is back, and its findings are then only logged:
        answers don't need the store.
        """
        refused = [each for each in await self._look() if each.severity is Severity.REFUSE]
        if refused and refuses:
            reasons = "; ".join(each.text for each in refused)
            raise CannotStart(f"Redis has {reasons} (--redis-check warn accepts this)")
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Stop checking."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            await self._look()

    async def _look(self) -> tuple[Finding, ...]:
        """Return the findings, or the last ones if the store is unavailable; log new ones."""
        try:
            found = await self._store.durability()
        except StoreUnavailable as error:
            log.debug("store away", extra={"reason": str(error)})
            return self._known
        for finding in found:
            if finding not in self._known:
                level = logging.ERROR if finding.severity is Severity.REFUSE else logging.WARNING
                log.log(level, "store may lose sessions", extra={"reason": finding.text})
        if self._known and not found:
            log.info("store keeps sessions")
        self._known = found
        return found
