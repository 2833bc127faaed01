"""Replicas of one role, and the choice of one for the next call."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType

from specmesh.orchestrator.mesh.connection import Channels
from specmesh.orchestrator.mesh.outliers import Cause, Outliers
from specmesh.orchestrator.mesh.peer import Admit, Peer
from specmesh.serving.conventions import CAUSE, EJECTIONS, ROLE
from specmesh.serving.errors import FailedPrecondition, Unavailable

log = logging.getLogger(__name__)

STATES = ("ready", "down", "refused", "ejected")
"""Of peers: can be called; has no health; serves what does not fit the mesh; is left out for a
while."""

_ejections = EJECTIONS.instrument()


class Reservation:
    """A call's slot at a peer, taken at construction and freed at the end of its ``with`` block."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._cancelled = False
        self._over = False
        peer.num_outstanding += 1

    def cancel(self) -> None:
        """Free the slot of a call that is about to be cancelled, so that another may take it.

        Does nothing once the call is over.
        """
        if not (self._cancelled or self._over):
            self._cancelled = True
            self._peer.num_outstanding -= 1
            self._peer.num_ending += 1

    def _release(self) -> None:
        self._over = True
        if self._cancelled:
            self._peer.num_ending -= 1
        else:
            self._peer.num_outstanding -= 1

    def __enter__(self) -> Peer:
        return self._peer

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._release()


class Pool:
    """The peers of one role, ready or not.

    If they are ``dispensable``, all of them may be ejected at once (see ``Outliers``).
    """

    def __init__(
        self,
        role: str,
        service: str,
        addresses: Sequence[str],
        admit: Admit | None,
        channels: Channels | None = None,
        *,
        dispensable: bool = False,
    ) -> None:
        self.role = role
        """What its peers are: "verifier"."""
        self.outliers = Outliers(last_stays=not dispensable)
        self.peers = [Peer(address, service, admit, channels) for address in addresses]
        self._num_starts = dict.fromkeys(addresses, 0)
        # Read several times per call, but changed only when a peer comes or goes.
        self._ready: list[Peer] = []
        self._kinds: list[str] = []
        for peer in self.peers:
            peer.watchers[partial(self._came_or_went, peer)] = None

    @property
    def ready(self) -> list[Peer]:
        """Peers that calls can be sent to."""
        return self._ready

    @property
    def kinds(self) -> list[str]:
        """The different models that ready peers serve, in the order of their addresses."""
        return self._kinds

    def states(self) -> dict[str, int]:
        """How many peers are in each of ``STATES``."""
        found = Counter(self._state(peer) for peer in self.peers)
        return {state: found[state] for state in STATES}

    def _state(self, peer: Peer) -> str:
        if peer.refusal:
            return "refused"
        if not peer.ready:
            return "down"
        return "ejected" if self.outliers.is_ejected(peer.address) else "ready"

    def ready_for(self, kind: str | None, only: Collection[str] | None = None) -> list[Peer]:
        """Ready peers that serve the model ``kind`` and are in ``only``; None: any."""
        if kind is None and only is None:
            return self._ready
        return [
            peer
            for peer in self._ready
            if (kind is None or kind == peer.kind) and (only is None or peer.address in only)
        ]

    def usable(self, kind: str | None = None, only: Collection[str] | None = None) -> list[Peer]:
        """The peers of ``ready_for`` that outlier ejection lets calls go to."""
        ready = self.ready_for(kind, only)
        if not self.outliers.any_ejected:
            return ready
        fit = self.outliers.usable([peer.address for peer in ready], _now())
        return [peer for peer in ready if peer.address in fit]

    def reserve(
        self,
        holds: dict[str, int],
        avoid: Collection[str] = (),
        kind: str | None = None,
        *,
        only: Collection[str] | None = None,
        proven: bool = False,
    ) -> Reservation:
        """Take a slot at the least busy peer; of equals, the one that holds most of the prefix.

        ``holds`` maps identities to tokens held; addresses in ``avoid`` (they have just
        failed) are taken only if no others are usable; ``kind`` and ``only`` as in
        ``ready_for``; ``proven`` prefers peers that have answered and not failed since.
        Raises ``Unavailable`` when no peer is usable, ``FailedPrecondition`` when no peer fits
        the mesh.
        """
        usable = self.usable(kind, only)
        if not usable:
            raise self._none_usable()
        peer = min(
            usable,
            key=lambda p: (
                p.address in avoid,
                proven and not self.outliers.proven(p.address),
                p.num_outstanding,
                p.num_ending,
                -holds.get(p.identity, 0),
            ),
        )
        if self.outliers.any_ejected:
            peer = self._probe_or(peer, () if avoid else usable)
        return Reservation(peer)

    def _probe_or(self, chosen: Peer, candidates: Sequence[Peer]) -> Peer:
        """The first of ``candidates``, then ``chosen``, that is due for a probe: this call is its
        probe. ``chosen`` if none is due."""
        now = _now()
        due = [p for p in (*candidates, chosen) if self.outliers.due(p.address, now)]
        if not due:
            return chosen
        self.outliers.tried(due[0].address, now)
        return due[0]

    def answered(self, peer: Peer, began: float, pace: float | None = None) -> None:
        """Record an answered call for outlier ejection; see ``Outliers.answered``."""
        among = self._interchangeable(peer)
        self._report(peer, self.outliers.answered(peer.address, among, began, _now(), pace))

    def failed(self, peer: Peer, began: float, cause: Cause = Cause.ERRORS) -> None:
        """Record a failed call for outlier ejection; see ``Outliers.failed``."""
        among = self._interchangeable(peer)
        self._report(peer, self.outliers.failed(peer.address, among, began, _now(), cause))

    @contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call ``watcher`` whenever a peer may have come or gone, while the block lasts."""
        for peer in self.peers:
            peer.watchers[watcher] = None
        try:
            yield
        finally:
            for peer in self.peers:
                peer.watchers.pop(watcher, None)

    async def wait_ready(self, only: Collection[str] | None = None) -> None:
        """Return once a peer (of ``only``) is ready, or all of them were refused."""
        peers = [peer for peer in self.peers if only is None or peer.address in only]
        while not (any(peer.ready for peer in peers) or all(peer.refusal for peer in peers)):
            await _changed(peers)

    async def close(self) -> None:
        """Close every channel."""
        await asyncio.gather(*(peer.close() for peer in self.peers))

    def _interchangeable(self, peer: Peer) -> list[str]:
        """Addresses of the peers that can take the calls of ``peer``, itself included."""
        addresses = [p.address for p in self._ready if p.kind == peer.kind]
        return addresses if peer.address in addresses else [peer.address, *addresses]

    def _report(self, peer: Peer, cause: Cause | None) -> None:
        if cause is not None:
            _ejections.add(1, {ROLE: self.role, CAUSE: cause.value})
            log.warning("replica left out", extra={"peer": peer.address, "cause": cause.value})

    def _came_or_went(self, peer: Peer) -> None:
        self._ready = [each for each in self.peers if each.ready]
        self._kinds = list(dict.fromkeys(each.kind for each in self._ready))
        if peer.num_starts > self._num_starts[peer.address]:
            self._num_starts[peer.address] = peer.num_starts
            self.outliers.restarted(peer.address, _now())

    def _none_usable(self) -> Exception:
        role = self.role.upper()
        refusals = [f"{peer.address}: {peer.refusal}" for peer in self.peers if peer.refusal]
        if refusals and len(refusals) == len(self.peers):
            return FailedPrecondition(f"{role}_REFUSED", "; ".join(refusals))
        problem = f"none of {len(self.peers)} {self.role}s is usable"
        return Unavailable(f"NO_{role}", "; ".join((problem, *refusals)))


async def _changed(peers: Sequence[Peer]) -> None:
    """Return when one of ``peers`` may have come or gone."""
    for peer in peers:
        peer.changed.clear()
    waits = [asyncio.create_task(peer.changed.wait()) for peer in peers]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _now() -> float:
    return asyncio.get_running_loop().time()
