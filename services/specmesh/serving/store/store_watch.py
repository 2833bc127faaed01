"""Looks at how Redis is configured: before sessions are kept there, and ever after.

A failover puts another server in the primary's place, which may be configured differently, and
settings change while a server runs.
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
    """A store that tells what it would lose."""

    async def durability(self) -> tuple[Finding, ...]:
        """What the server that answers now would lose. Raises StoreUnavailable."""
        ...


class StoreWatch:
    """Logs what a store would lose, each time that it becomes something else."""

    def __init__(self, store: Judged, period_s: float = PERIOD_S) -> None:
        self._store = store
        self._period_s = period_s
        self._known: tuple[Finding, ...] = ()
        self._watching: asyncio.Task[None] | None = None

    async def start(self, *, refuses: bool) -> None:
        """Look once, and go on looking until ``stop``.

        Raises ``CannotStart`` if ``refuses`` and the store loses sessions while everything works.
        A store that is away is looked at when it is back, and then only logged about: answers
        come without it, too.
        """
        refused = [each for each in await self._look() if each.severity is Severity.REFUSE]
        if refused and refuses:
            reasons = "; ".join(each.text for each in refused)
            raise CannotStart(f"Redis has {reasons} (--redis-check warn takes it as it is)")
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Look no more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            await self._look()

    async def _look(self) -> tuple[Finding, ...]:
        """What the store would lose, as far as is known; logs what is new."""
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
