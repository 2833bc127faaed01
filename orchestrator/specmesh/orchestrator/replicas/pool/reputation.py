"""The reputation of a pool's processes: which are ejected, and which are new, called with care."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self

from specmesh.orchestrator.replicas.pool.outliers import EjectionReason, Outliers
from specmesh.orchestrator.replicas.pool.slow_start import SlowStart
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.serving.conventions import EJECTION_REASON, ROLE
from specmesh.serving.metrics import EJECTIONS

log = logging.getLogger(__name__)

_ejections = EJECTIONS.instrument()


class Reputation:
    """Follows which process serves at the address of each of ``peers``, which the pool changes, and
    how it answers. If the peers are ``dispensable``, all of them may be ejected at the same time
    (see ``Outliers``)."""

    def __init__(self, role: str, peers: Sequence[Peer], *, dispensable: bool) -> None:
        self.outliers = Outliers(last_stays=not dispensable)
        self.forgetters: list[Callable[[str], None]] = []
        """Called with an address when the process that served there is gone for good."""
        self._role = role
        self._peers = peers
        self._slow_start = SlowStart()
        self._processes: dict[str, _Process] = {}
        """The process that served last, by address."""

    def came_or_went(self, peer: Peer) -> None:
        """Note that ``peer`` may have become ready or not, or another process."""
        former, latest = self._processes.get(peer.address, _NOBODY), _Process.of(peer)
        if latest.number != former.number:
            self._processes[peer.address] = latest
            if former is not _NOBODY:
                self._replaced(peer.address, former, latest)
        if peer.ready:
            self._slow_start.came(peer.identity, now())

    def left(self, address: str) -> None:
        """Forget the process at ``address``, whose peer is no longer one of the pool's."""
        self._processes.pop(address, None)
        self.outliers.forget(address)
        self._forget(address)

    def answered(
        self, peer: Peer, among: Sequence[str], began: float, pace: float | None = None
    ) -> None:
        """Record an answered call; see ``Outliers.answered``."""
        was_ejected = self.outliers.any_ejected and self.outliers.is_ejected(peer.address)
        self._report(peer, self.outliers.answered(peer.address, among, began, now(), pace))
        if was_ejected and not self.outliers.is_ejected(peer.address):
            log.info("replica readmitted", extra=peer.log_fields)

    def failed(self, peer: Peer, among: Sequence[str], began: float, cause: EjectionReason) -> None:
        """Record a failed call; see ``Outliers.failed``."""
        self._report(peer, self.outliers.failed(peer.address, among, began, now(), cause))

    def reluctance(self, usable: Sequence[Peer]) -> Mapping[str, float]:
        """Return the factors by which the loads of new processes count more, by identity."""
        if not self._slow_start.any_new(now()):
            return {}
        return self._slow_start.reluctance([peer.identity for peer in usable], now())

    def probe_or(self, chosen: Peer, candidates: Sequence[Peer]) -> Peer:
        """Return the first of ``candidates``, then ``chosen``, that is due for a probe, which this
        call becomes; ``chosen`` if none is due."""
        due = [p for p in (*candidates, chosen) if self.outliers.due(p.address, now())]
        if not due:
            return chosen
        self.outliers.tried(due[0].address, now())
        return due[0]

    def _report(self, peer: Peer, cause: EjectionReason | None) -> None:
        if cause is not None:
            _ejections.add(1, {ROLE: self._role, EJECTION_REASON: cause.value})
            log.warning("replica ejected", extra={**peer.log_fields, "cause": cause.value})

    def _replaced(self, address: str, former: _Process, latest: _Process) -> None:
        """Handle a new process at ``address``, or the same process on a new connection."""
        if former.instance == latest.instance:
            self.outliers.restarted(address, now())
        else:
            self.outliers.forget(address)
        if former.identity != latest.identity:
            self._forget(address)

    def _forget(self, address: str) -> None:
        self._slow_start.keep({peer.identity for peer in self._peers})
        for forget in self.forgetters:
            forget(address)


class _Process(NamedTuple):
    """The process that a peer has found at its address."""

    number: int
    identity: str
    instance: str

    @classmethod
    def of(cls, peer: Peer) -> Self:
        return cls(peer.process_number, peer.identity, peer.instance)


_NOBODY = _Process(0, "", "")


def now() -> float:
    """Return the time by the event loop's clock."""
    return asyncio.get_running_loop().time()
