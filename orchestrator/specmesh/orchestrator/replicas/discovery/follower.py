"""Follows DNS names, so that a pool always has the replicas they resolve to."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from specmesh.orchestrator.replicas.discovery.entries import Entries, Name
from specmesh.orchestrator.replicas.discovery.membership import DnsAnswer, Membership
from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.serving.conventions import ROLE
from specmesh.serving.metrics import LOOKUP_FAILURES

log = logging.getLogger(__name__)

EVERY_SECONDS = 5.0
"""Seconds between lookups of a name: the TTL that Kubernetes gives the names of Services."""
LEAST_SECONDS = 1.0
"""Shortest pause between two lookups of a name."""
JITTER = 0.2
"""Share by which pauses vary, so that orchestrators do not all query at the same time."""

_failures = LOOKUP_FAILURES.instrument()


class Follower:
    """Looks up the names of ``entries`` repeatedly, adding replicas to ``pool`` and dropping them.

    A name is looked up every ``every_s`` seconds. It is looked up sooner when the pool loses a
    replica, and at first also while it has no addresses or no name server answers.
    """

    def __init__(
        self,
        pool: Pool,
        entries: Entries,
        look_up: Callable[[Name], Awaitable[DnsAnswer]],
        every_s: float = EVERY_SECONDS,
        rng: random.Random | None = None,
    ) -> None:
        self._pool = pool
        self._membership = Membership(entries)
        self._look_up = look_up
        self._every_s = every_s
        self._dice = rng or random.Random()  # noqa: S311 - for jitter
        self._serving = self._serving_now()
        self._lost = {name: asyncio.Event() for name in entries.names}
        """Set when a replica has been lost since the last lookup."""
        pool.watchers[self._changed] = None
        self._tasks = [
            asyncio.create_task(self._follow(name), name=f"follow {name}") for name in entries.names
        ]

    async def close(self) -> None:
        """Stop all lookups. The pool keeps its replicas."""
        self._pool.watchers.pop(self._changed, None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, name: Name) -> None:
        num_vain, problem = 0, ""
        while True:
            self._lost[name].clear()
            try:
                problem = await self._update(name, problem)
            except Exception as error:  # nothing may end the task: the pool would stay as it is
                log.exception("name not followed", extra={"target": str(name)})
                problem = type(error).__name__
            num_vain = num_vain + 1 if problem else 0
            await self._pause(name, num_vain)

    async def _update(self, name: Name, former: str) -> str:
        """Look up ``name`` and update the pool. Return the problem, empty if there is none;
        ``former`` is that of the lookup before."""
        answer = await self._look_up(name)
        problem = answer.failure or ("" if answer.addresses else "no address")
        if problem:
            _failures.add(1, {ROLE: self._pool.role})
        if problem and problem != former:
            log.warning("name not resolved", extra={"target": str(name), "reason": problem})
        elif former and not problem:
            log.info("name resolved", extra={"target": str(name)})
        self._membership.answered(name, answer, self._serving_now())
        self._apply(name)
        return problem

    def _apply(self, name: Name) -> None:
        """Make the pool have what DNS says, which also makes up for an update that failed."""
        change = self._membership.change_from([peer.address for peer in self._pool.peers])
        for address in change.added:
            log.info("replica added", extra={"peer": address, "target": str(name)})
            self._pool.add(address)
        for address in change.dropped:
            self._pool.drop(address)

    async def _pause(self, name: Name, num_vain: int) -> None:
        """Wait until ``name`` should be looked up again, after ``num_vain`` consecutive lookups
        without an address."""
        pause_s = self._every_s
        if num_vain:
            pause_s = min(pause_s, LEAST_SECONDS * 2.0 ** min(num_vain - 1, 10))
        pause_s *= self._dice.uniform(1 - JITTER, 1 + JITTER)
        least_s = min(pause_s, LEAST_SECONDS)
        await asyncio.sleep(least_s)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._lost[name].wait(), pause_s - least_s)

    def _changed(self) -> None:
        before, self._serving = self._serving, self._serving_now()
        if not before <= self._serving:
            for lost in self._lost.values():
                lost.set()

    def _serving_now(self) -> frozenset[str]:
        return frozenset(peer.address for peer in self._pool.peers if peer.serving)
