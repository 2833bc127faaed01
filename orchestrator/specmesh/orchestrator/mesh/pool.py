"""Replicas of one role, and the choice of one for the next call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from specmesh.orchestrator.mesh.peer import Admit, OpenChannel, Peer, insecure_channel
from specmesh.serving.errors import FailedPrecondition, Unavailable


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
    """The peers of one role, ready or not."""

    def __init__(
        self,
        role: str,
        service: str,
        addresses: Sequence[str],
        admit: Admit | None,
        open_channel: OpenChannel = insecure_channel,
    ) -> None:
        self._role = role
        self.peers = [Peer(address, service, admit, open_channel) for address in addresses]

    @property
    def ready(self) -> list[Peer]:
        """Peers that work can be sent to."""
        return [peer for peer in self.peers if peer.ready]

    @property
    def kinds(self) -> list[str]:
        """The different models that ready peers serve, in the order of their addresses."""
        return list(dict.fromkeys(peer.kind for peer in self.ready))

    def reserve(
        self, holds: dict[str, int], avoid: Collection[str] = (), kind: str | None = None
    ) -> Reservation:
        """A place at the least busy peer, then at the one that holds most of the prefix.

        ``holds`` maps addresses to tokens held; addresses in ``avoid`` (they have just
        failed) are taken only if nobody else is ready; ``kind`` names a model, None any.
        Raises ``Unavailable`` when nobody is ready, ``FailedPrecondition`` when none of them
        fits the mesh.
        """
        ready = [peer for peer in self.ready if kind in {None, peer.kind}]
        if not ready:
            raise self._nobody()
        peer = min(
            ready,
            key=lambda p: (
                p.address in avoid,
                p.num_outstanding,
                p.num_ending,
                -holds.get(p.address, 0),
            ),
        )
        return Reservation(peer)

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

    async def wait_ready(self) -> None:
        """Return once a peer is ready or every one of them was refused."""
        while not (self.ready or (self.peers and all(peer.refusal for peer in self.peers))):
            for peer in self.peers:
                peer.changed.clear()
            waits = [asyncio.create_task(peer.changed.wait()) for peer in self.peers]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    async def close(self) -> None:
        """Close every channel."""
        await asyncio.gather(*(peer.close() for peer in self.peers))

    def _nobody(self) -> Exception:
        role = self._role.upper()
        refusals = [f"{peer.address}: {peer.refusal}" for peer in self.peers if peer.refusal]
        if refusals and len(refusals) == len(self.peers):
            return FailedPrecondition(f"{role}_REFUSED", "; ".join(refusals))
        nobody = f"none of {len(self.peers)} {self._role}s is ready"
        return Unavailable(f"NO_{role}", "; ".join((nobody, *refusals)))
