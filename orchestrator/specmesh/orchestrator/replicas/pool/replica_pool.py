"""The replicas of one role, and the choice of a replica for each call."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from specmesh.orchestrator.replicas.need import ANY, Need
from specmesh.orchestrator.replicas.pool.outliers import EjectionReason
from specmesh.orchestrator.replicas.pool.ready_peers import ReadyPeers, distinct
from specmesh.orchestrator.replicas.pool.reputation import Reputation, now
from specmesh.orchestrator.replicas.pool.reservation import Reservation
from specmesh.orchestrator.replicas.transport.connection import Channels
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.orchestrator.replicas.transport.peer_model import Admit
from specmesh.serving.errors import FailedPreconditionStatus, ServiceError, UnavailableStatus
from specmesh.v1 import model_pb2

log = logging.getLogger(__name__)

STATES = ("ready", "down", "refused", "ejected")
"""States of peers: can be called; is not healthy; serves something that does not fit the mesh; is
temporarily ejected."""

NO_PEER_SECONDS = 5.0
"""Longest wait of a call for a peer, long enough for one that is merely restarting."""
MAX_READING = 4
"""Most calls by which a peer that lacks a prefix counts as busier, however long the prefix is: it
is read only once, and one replica must not get all requests that begin alike."""
MAX_FULL_SECONDS = 60.0
"""Longest time for which a peer that said it is full is passed over, whatever it asked for."""


class Pool:
    """The peers of one role, ready or not; replicas may join and leave at any time.

    ``names`` are DNS names that may lead to peers beyond ``addresses``. If the peers are
    ``dispensable``, all of them may be ejected at the same time (see ``Outliers``).
    """

    def __init__(
        self,
        role: str,
        service: str,
        addresses: Sequence[str],
        admit: Admit | None,
        channels: Channels | None = None,
        *,
        names: Sequence[str] = (),
        dispensable: bool = False,
    ) -> None:
        self.role = role
        """The role of its peers, such as "verifier"."""
        self.peers: list[Peer] = []
        """One per address, in the order in which they were added."""
        self._reputation = Reputation(role, self.peers, dispensable=dispensable)
        self.outliers = self._reputation.outliers
        self.forgetters = self._reputation.forgetters
        self.watchers: dict[Callable[[], None], None] = {}
        """Called whenever the ready peers may have changed, in the order they were added."""
        self._names = names
        self._make = partial(Peer, service=service, admit=admit, channels=channels)
        self._leaving: set[asyncio.Task[None]] = set()
        # Read several times per call, but changed only when a peer comes or goes.
        self._ready = ReadyPeers()
        self._empty_since: float | None = now()
        """Time since which no peer has been ready; None while one is."""
        for address in addresses:
            self.add(address)

    def add(self, address: str) -> None:
        """Watch a replica at the new ``address``, and call it once it is ready."""
        peer = self._make(address)
        self.peers.append(peer)
        peer.watchers[partial(self._came_or_went, peer)] = None
        self._changed()

    def drop(self, address: str) -> None:
        """Send no more calls to the replica at ``address``; close its channel after its calls."""
        (peer,) = (each for each in self.peers if each.address == address)
        self.peers.remove(peer)
        log.info("replica dropped", extra=peer.log_fields)
        peer.watchers.clear()
        self._reputation.left(address)
        leaving = peer.retire()
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        self._changed()

    @property
    def configured(self) -> bool:
        """True if there are replicas, or DNS names that may resolve to some."""
        return bool(self.peers or self._names)

    @property
    def all_refused(self) -> bool:
        """True if waiting is useless: no peer fits the mesh, or there is no peer and no DNS name
        that may resolve to one."""
        return bool(self.peers or not self._names) and all(peer.refusal for peer in self.peers)

    @property
    def ready(self) -> list[Peer]:
        """The peers that can be called. A process found at several addresses is called at the
        first of them."""
        return self._ready.peers

    @property
    def kinds(self) -> list[str]:
        """The distinct models of the ready peers, in the order of their addresses."""
        return self._ready.kinds

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts of the ready peers."""
        return self._ready.hosts

    @property
    def replicas(self) -> list[Peer]:
        """The peers, with each process at one of its addresses only."""
        return distinct(sorted(self.peers, key=lambda peer: not peer.ready))

    def states(self) -> dict[str, int]:
        """Return the number of replicas in each of ``STATES``."""
        found = Counter(self._state(peer) for peer in self.replicas)
        return {state: found[state] for state in STATES}

    def _state(self, peer: Peer) -> str:
        if peer.refusal:
            return "refused"
        if not peer.ready:
            return "down"
        return "ejected" if self.outliers.is_ejected(peer.address) else "ready"

    def ready_for(self, need: Need, only: Collection[str] | None = None) -> list[Peer]:
        """Return the ready peers that meet ``need`` and are in ``only`` (None means any)."""
        return self._ready.that_meet(need, only)

    def usable(self, need: Need = ANY, only: Collection[str] | None = None) -> list[Peer]:
        """Return the peers of ``ready_for`` that outlier ejection allows to be called."""
        ready = self.ready_for(need, only)
        if not self.outliers.any_ejected:
            return ready
        fit = self.outliers.usable([peer.address for peer in ready], now())
        return [peer for peer in ready if peer.address in fit]

    def reserve(
        self,
        holds: dict[str, int],
        avoid: Collection[str] = (),
        need: Need = ANY,
        *,
        only: Collection[str] | None = None,
        proven: bool = False,
        tokens_a_call: float = math.inf,
        wanted: model_pb2.ModelFeature.ValueType | None = None,
    ) -> Reservation:
        """Reserve a slot at the least busy peer. Ties go to a peer with the feature ``wanted``,
        then to the one that holds most of the prefix. The load of a new peer is weighted higher
        (``SlowStart``).

        ``holds`` maps identities to tokens held. For every ``tokens_a_call`` tokens that a peer
        holds less than the best one, it counts as busy with one more call, up to ``MAX_READING``.
        Peers at addresses in ``avoid``, which have just failed, are chosen only if no others are
        usable, and those that said they are full if all others have; ``need`` and ``only`` are as
        in ``ready_for``; ``proven`` prefers peers that have answered and not failed since. Raises
        ``UnavailableStatus`` if no peer is usable, ``FailedPreconditionStatus`` if no peer fits the
        mesh.
        """
        usable = self.usable(need, only)
        if not usable:
            raise self.none_usable(need)
        reluctance = self._reputation.reluctance(usable)
        held = [holds.get(p.identity, 0) for p in usable]
        most, at = max(held), now()
        ranks = [
            (
                p.address in avoid,
                # It has the fewest calls of all just because it takes none.
                p.full_until > at,
                proven and not self.outliers.proven(p.address),
                # The prefix tokens that it lacks, in calls.
                (p.num_outstanding + 1 + min(MAX_READING, (most - num_held) // tokens_a_call))
                * (reluctance.get(p.identity, 1) if reluctance else 1),
                p.num_ending,
                wanted is not None and not p.can(wanted),
                -num_held,
            )
            for p, num_held in zip(usable, held, strict=True)
        ]
        peer = usable[ranks.index(min(ranks))]
        if self.outliers.any_ejected:
            peer = self._reputation.probe_or(peer, () if avoid else usable)
        return Reservation(peer)

    def answered(self, peer: Peer, began: float, pace: float | None = None) -> None:
        """Record an answered call for outlier ejection; see ``Outliers.answered``."""
        if not peer.has_left:
            self._reputation.answered(peer, self._interchangeable(peer), began, pace)

    def refused(self, peer: Peer, for_s: float) -> None:
        """Record that ``peer`` said it is full, and asked for no further calls for ``for_s``."""
        peer.full_until = now() + min(for_s, MAX_FULL_SECONDS)

    def failed(
        self, peer: Peer, began: float, cause: EjectionReason = EjectionReason.ERRORS
    ) -> None:
        """Record a failed call for outlier ejection; see ``Outliers.failed``."""
        if not peer.has_left:
            self._reputation.failed(peer, self._interchangeable(peer), began, cause)

    @contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call ``watcher`` whenever the ready peers may have changed, until the block ends."""
        self.watchers[watcher] = None
        try:
            yield
        finally:
            self.watchers.pop(watcher, None)

    async def wait_ready(self, only: Collection[str] | None = None, need: Need = ANY) -> None:
        """Return once a peer in ``only`` that meets ``need`` is ready, all peers were refused, or
        all peers in ``only`` have left and another is ready."""
        changed = asyncio.Event()
        with self.watched(changed.set):
            while not (self.ready_for(need, only) or self.all_refused or self._have_left(only)):
                changed.clear()
                await changed.wait()

    def patience_s(self, *, has_begun: bool) -> float:
        """Return how long to wait for a peer that meets a need. An answer that has begun always
        waits, because its work would be lost; any other is refused immediately when no peer has
        been ready for as long as that."""
        if has_begun or self._empty_since is None:
            return NO_PEER_SECONDS
        return max(0.0, self._empty_since + NO_PEER_SECONDS - now())

    async def require(self, need: Need, deadline: float) -> None:
        """Return once a peer that meets ``need`` is ready, so that an answer can begin. Raises what
        ``reserve`` raises if none becomes ready within ``patience_s``, or by ``deadline``, by the
        event loop's clock."""
        if self.ready_for(need):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(min(self.patience_s(has_begun=False), deadline - now())):
                await self.wait_ready(need=need)
        if not self.ready_for(need):
            raise self.none_usable(need)

    def none_usable(self, need: Need = ANY) -> ServiceError:
        """Return the refusal of a call for which no peer is usable."""
        role = self.role.upper()
        refusals = [f"{peer.title}: {peer.refusal}" for peer in self.peers if peer.refusal]
        if refusals and len(refusals) == len(self.peers):
            return FailedPreconditionStatus(f"{role}_REFUSED", "; ".join(refusals))
        if self._names and not self.peers:
            problem = f"no {self.role} found at {', '.join(self._names)}"
        else:
            problem = f"none of {len(self.replicas)} {self.role}s is usable"
            if self._ready and str(need):
                problem += f" for {need}"
        return UnavailableStatus(f"NO_{role}", "; ".join((problem, *refusals)))

    async def close(self) -> None:
        """Close every channel."""
        for leaving in self._leaving:
            leaving.cancel()
        closing = (*(peer.close() for peer in self.peers), *self._leaving)
        await asyncio.gather(*closing, return_exceptions=True)

    def _have_left(self, only: Collection[str] | None) -> bool:
        gone = only is not None and not any(peer.address in only for peer in self.peers)
        return gone and bool(self._ready)

    def _interchangeable(self, peer: Peer) -> list[str]:
        """Return the addresses of the peers that can take the calls of ``peer``, including it."""
        addresses = [p.address for p in self.ready if p.kind == peer.kind]
        return addresses if peer.address in addresses else [peer.address, *addresses]

    def _came_or_went(self, peer: Peer) -> None:
        self._reputation.came_or_went(peer)
        self._changed()

    def _changed(self) -> None:
        self._ready = ReadyPeers(each for each in self.peers if each.ready)
        if self._ready:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now()
        for watcher in list(self.watchers):
            watcher()
