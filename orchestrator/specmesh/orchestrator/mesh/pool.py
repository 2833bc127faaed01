"""Replicas of one role, and the choice of one for the next call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType

from opentelemetry import metrics

from specmesh.orchestrator.mesh.outliers import Cause, Outliers
from specmesh.orchestrator.mesh.peer import Admit, OpenChannel, Peer, insecure_channel
from specmesh.serving.errors import FailedPrecondition, Unavailable

log = logging.getLogger(__name__)

_ejections = metrics.get_meter("specmesh.orchestrator").create_counter(
    "specmesh.replica.ejections",
    unit="{ejection}",
    description="replicas left out for a while since they failed or were slow",
)


class Reservation:
    """A call's place at a peer, which counts as busy for as long as a ``with`` block lasts."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._cancelled = False
        self._over = False
        peer.num_outstanding += 1

    def cancel(self) -> None:
        """The call will be cancelled: whoever needs the place may have it already.

        Nothing happens once the call is over.
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

    If they are ``dispensable``, all may be left out for what they do (see ``Outliers``).
    """

    def __init__(
        self,
        role: str,
        service: str,
        addresses: Sequence[str],
        admit: Admit | None,
        open_channel: OpenChannel = insecure_channel,
        *,
        dispensable: bool = False,
    ) -> None:
        self._role = role
        self.outliers = Outliers(last_stays=not dispensable)
        self.peers = [Peer(address, service, admit, open_channel) for address in addresses]
        self._num_starts = dict.fromkeys(addresses, 0)
        # Asked for several times a call, they change only when a peer comes or goes.
        self._ready: list[Peer] = []
        self._kinds: list[str] = []
        for peer in self.peers:
            peer.watchers[partial(self._came_or_went, peer)] = None

    @property
    def ready(self) -> list[Peer]:
        """Peers that work can be sent to."""
        return self._ready

    @property
    def kinds(self) -> list[str]:
        """The different models that ready peers serve, in the order of their addresses."""
        return self._kinds

    def ready_for(self, kind: str | None, only: Collection[str] | None = None) -> list[Peer]:
        """Those ready that serve the model ``kind`` (None: any) and are among ``only``."""
        if kind is None and only is None:
            return self._ready
        return [
            peer
            for peer in self._ready
            if (kind is None or kind == peer.kind) and (only is None or peer.address in only)
        ]

    def usable(self, kind: str | None = None, only: Collection[str] | None = None) -> list[Peer]:
        """Those of ``ready_for`` that are not left out for what they did."""
        ready = self.ready_for(kind, only)
        if not self.outliers.any_out:
            return ready
        fit = self.outliers.fit([peer.address for peer in ready], _now())
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
        """A place at the least busy peer, then at the one that holds most of the prefix.

        ``holds`` maps addresses to tokens held; addresses in ``avoid`` (they have just
        failed) are taken only if nobody else is usable; ``kind`` and ``only`` as in
        ``ready_for``; ``proven`` prefers those that have answered and not failed since.
        Raises ``Unavailable`` when nobody is usable, ``FailedPrecondition`` when none of them
        fits the mesh.
        """
        usable = self.usable(kind, only)
        if not usable:
            raise self._nobody()
        peer = min(
            usable,
            key=lambda p: (
                p.address in avoid,
                proven and not self.outliers.proven(p.address),
                p.num_outstanding,
                p.num_ending,
                -holds.get(p.address, 0),
            ),
        )
        if self.outliers.any_out:
            peer = self._on_trial(peer, () if avoid else usable)
        return Reservation(peer)

    def _on_trial(self, chosen: Peer, instead: Sequence[Peer]) -> Peer:
        """One of ``instead`` that was left out for long enough, if there is any; this call
        tries it then, as it does if ``chosen`` is such a one."""
        now = _now()
        due = [p for p in (*instead, chosen) if self.outliers.due(p.address, now)]
        if not due:
            return chosen
        self.outliers.tried(due[0].address, now)
        return due[0]

    def answered(self, peer: Peer, began: float, pace: float | None = None) -> None:
        """See ``Outliers.answered``."""
        among = self._like(peer)
        self._tell(peer, self.outliers.answered(peer.address, among, began, _now(), pace))

    def failed(self, peer: Peer, began: float, cause: Cause = Cause.ERRORS) -> None:
        """See ``Outliers.failed``."""
        among = self._like(peer)
        self._tell(peer, self.outliers.failed(peer.address, among, began, _now(), cause))

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
        """Return once a peer (of ``only``) is ready or every one of them was refused."""
        peers = [peer for peer in self.peers if only is None or peer.address in only]
        while not (any(peer.ready for peer in peers) or all(peer.refusal for peer in peers)):
            await _changed(peers)

    async def close(self) -> None:
        """Close every channel."""
        await asyncio.gather(*(peer.close() for peer in self.peers))

    def _like(self, peer: Peer) -> list[str]:
        """The addresses of those that could take the calls of ``peer``, itself included."""
        like = [p.address for p in self._ready if p.kind == peer.kind]
        return like if peer.address in like else [peer.address, *like]

    def _tell(self, peer: Peer, cause: Cause | None) -> None:
        if cause is not None:
            _ejections.add(1, {"specmesh.role": self._role, "specmesh.cause": cause.value})
            log.warning("replica left out", extra={"peer": peer.address, "cause": cause.value})

    def _came_or_went(self, peer: Peer) -> None:
        self._ready = [each for each in self.peers if each.ready]
        self._kinds = list(dict.fromkeys(each.kind for each in self._ready))
        if peer.num_starts > self._num_starts[peer.address]:
            self._num_starts[peer.address] = peer.num_starts
            self.outliers.restarted(peer.address, _now())

    def _nobody(self) -> Exception:
        role = self._role.upper()
        refusals = [f"{peer.address}: {peer.refusal}" for peer in self.peers if peer.refusal]
        if refusals and len(refusals) == len(self.peers):
            return FailedPrecondition(f"{role}_REFUSED", "; ".join(refusals))
        nobody = f"none of {len(self.peers)} {self._role}s is usable"
        return Unavailable(f"NO_{role}", "; ".join((nobody, *refusals)))


async def _changed(peers: Sequence[Peer]) -> None:
    """Return when one of them may have come or gone."""
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
