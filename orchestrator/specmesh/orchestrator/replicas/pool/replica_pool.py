"""The replicas of one role, and the choice of a replica for each call."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple, Self

from specmesh.orchestrator.replicas.need import ANY, Need
from specmesh.orchestrator.replicas.pool.outliers import EjectionReason, Outliers
from specmesh.orchestrator.replicas.pool.reservation import Reservation
from specmesh.orchestrator.replicas.pool.slow_start import SlowStart
from specmesh.orchestrator.replicas.transport.connection import Channels
from specmesh.orchestrator.replicas.transport.peer import Admit, Peer
from specmesh.serving.conventions import EJECTION_REASON, EJECTIONS, ROLE
from specmesh.serving.errors import FailedPreconditionStatus, UnavailableStatus
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

_ejections = EJECTIONS.instrument()


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
        self.outliers = Outliers(last_stays=not dispensable)
        self.peers: list[Peer] = []
        """One per address, in the order in which they were added."""
        self.watchers: dict[Callable[[], None], None] = {}
        """Called whenever the ready peers may have changed, in the order they were added."""
        self.forgetters: list[Callable[[str], None]] = []
        """Called with an address when the process that served there is gone for good."""
        self._names = names
        self._make = partial(Peer, service=service, admit=admit, channels=channels)
        self._slow_start = SlowStart()
        self._processes: dict[str, _Process] = {}
        """The process that served last, by address."""
        self._leaving: set[asyncio.Task[None]] = set()
        # Read several times per call, but changed only when a peer comes or goes.
        self._ready: list[Peer] = []
        self._kinds: list[str] = []
        self._empty_since: float | None = _now()
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
        self._processes.pop(address, None)
        self.outliers.forget(address)
        self._forget(address)
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
        return self._ready

    @property
    def kinds(self) -> list[str]:
        """The distinct models of the ready peers, in the order of their addresses."""
        return self._kinds

    @property
    def replicas(self) -> list[Peer]:
        """The peers, with each process at one of its addresses only."""
        return _distinct(sorted(self.peers, key=lambda peer: not peer.ready))

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
        if need.is_any and only is None:
            return self._ready
        return [
            peer
            for peer in self._ready
            if need.met_by(peer) and (only is None or peer.address in only)
        ]

    def usable(self, need: Need = ANY, only: Collection[str] | None = None) -> list[Peer]:
        """Return the peers of ``ready_for`` that outlier ejection allows to be called."""
        ready = self.ready_for(need, only)
        if not self.outliers.any_ejected:
            return ready
        fit = self.outliers.usable([peer.address for peer in ready], _now())
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
        usable; ``need`` and ``only`` are as in ``ready_for``; ``proven`` prefers peers that have
        answered and not failed since. Raises ``UnavailableStatus`` if no peer is usable,
        ``FailedPreconditionStatus`` if no peer fits the mesh.
        """
        usable = self.usable(need, only)
        if not usable:
            raise self._none_usable(need)
        reluctance = self._reluctance(usable)
        most = max(holds.get(p.identity, 0) for p in usable)

        def reading(p: Peer) -> float:
            """Return the prefix tokens that ``p`` lacks, in calls."""
            return min(MAX_READING, (most - holds.get(p.identity, 0)) // tokens_a_call)

        peer = min(
            usable,
            key=lambda p: (
                p.address in avoid,
                proven and not self.outliers.proven(p.address),
                (p.num_outstanding + 1 + reading(p)) * reluctance.get(p.identity, 1),
                p.num_ending,
                wanted is not None and not p.can(wanted),
                -holds.get(p.identity, 0),
            ),
        )
        if self.outliers.any_ejected:
            peer = self._probe_or(peer, () if avoid else usable)
        return Reservation(peer)

    def _probe_or(self, chosen: Peer, candidates: Sequence[Peer]) -> Peer:
        """Return the first of ``candidates``, then ``chosen``, that is due for a probe, which this
        call becomes; ``chosen`` if none is due."""
        now = _now()
        due = [p for p in (*candidates, chosen) if self.outliers.due(p.address, now)]
        if not due:
            return chosen
        self.outliers.tried(due[0].address, now)
        return due[0]

    def answered(self, peer: Peer, began: float, pace: float | None = None) -> None:
        """Record an answered call for outlier ejection; see ``Outliers.answered``."""
        if peer not in self.peers:  # it has left, and its address may belong to another peer
            return
        was_ejected = self.outliers.is_ejected(peer.address)
        among = self._interchangeable(peer)
        self._report(peer, self.outliers.answered(peer.address, among, began, _now(), pace))
        if was_ejected and not self.outliers.is_ejected(peer.address):
            log.info("replica readmitted", extra=peer.log_fields)

    def failed(
        self, peer: Peer, began: float, cause: EjectionReason = EjectionReason.ERRORS
    ) -> None:
        """Record a failed call for outlier ejection; see ``Outliers.failed``."""
        if peer not in self.peers:
            return
        among = self._interchangeable(peer)
        self._report(peer, self.outliers.failed(peer.address, among, began, _now(), cause))

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
        return max(0.0, self._empty_since + NO_PEER_SECONDS - _now())

    async def require(self, need: Need, deadline: float) -> None:
        """Return once a peer that meets ``need`` is ready, so that an answer can begin. Raises what
        ``reserve`` raises if none becomes ready within ``patience_s``, or by ``deadline``, by the
        event loop's clock."""
        if self.ready_for(need):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(min(self.patience_s(has_begun=False), deadline - _now())):
                await self.wait_ready(need=need)
        if not self.ready_for(need):
            raise self._none_usable(need)

    async def close(self) -> None:
        """Close every channel."""
        for leaving in self._leaving:
            leaving.cancel()
        closing = (*(peer.close() for peer in self.peers), *self._leaving)
        await asyncio.gather(*closing, return_exceptions=True)

    def _have_left(self, only: Collection[str] | None) -> bool:
        gone = only is not None and not any(peer.address in only for peer in self.peers)
        return gone and bool(self._ready)

    def _reluctance(self, usable: Sequence[Peer]) -> Mapping[str, float]:
        now = _now()
        if not self._slow_start.any_new(now):
            return {}
        return self._slow_start.reluctance([peer.identity for peer in usable], now)

    def _interchangeable(self, peer: Peer) -> list[str]:
        """Return the addresses of the peers that can take the calls of ``peer``, including it."""
        addresses = [p.address for p in self._ready if p.kind == peer.kind]
        return addresses if peer.address in addresses else [peer.address, *addresses]

    def _report(self, peer: Peer, cause: EjectionReason | None) -> None:
        if cause is not None:
            _ejections.add(1, {ROLE: self.role, EJECTION_REASON: cause.value})
            log.warning("replica ejected", extra={**peer.log_fields, "cause": cause.value})

    def _came_or_went(self, peer: Peer) -> None:
        former, now = self._processes.get(peer.address, _NOBODY), _Process.of(peer)
        if now.number != former.number:
            self._processes[peer.address] = now
            if former is not _NOBODY:
                self._replaced(peer.address, former, now)
        if peer.ready:
            self._slow_start.came(peer.identity, _now())
        self._changed()

    def _replaced(self, address: str, former: _Process, now: _Process) -> None:
        """Handle a new process at ``address``, or the same process on a new connection."""
        if former.instance == now.instance:
            self.outliers.restarted(address, _now())
        else:
            self.outliers.forget(address)
        if former.identity != now.identity:
            self._forget(address)

    def _forget(self, address: str) -> None:
        self._slow_start.keep({peer.identity for peer in self.peers})
        for forget in self.forgetters:
            forget(address)

    def _changed(self) -> None:
        self._ready = _distinct(each for each in self.peers if each.ready)
        self._kinds = list(dict.fromkeys(each.kind for each in self._ready))
        if self._ready:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = _now()
        for watcher in list(self.watchers):
            watcher()

    def _none_usable(self, need: Need) -> Exception:
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


class _Process(NamedTuple):
    """The process that a peer has found at its address."""

    number: int
    identity: str
    instance: str

    @classmethod
    def of(cls, peer: Peer) -> Self:
        return cls(peer.process_number, peer.identity, peer.instance)


_NOBODY = _Process(0, "", "")


def _distinct(peers: Iterable[Peer]) -> list[Peer]:
    """Return the first peer of each process."""
    first: dict[str, Peer] = {}
    for peer in peers:
        first.setdefault(peer.identity, peer)
    return list(first.values())


def _now() -> float:
    return asyncio.get_running_loop().time()
