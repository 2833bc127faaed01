"""The slot of a call at one replica, which counts as busy while the slot is held."""

from __future__ import annotations

from types import TracebackType

from specmesh.orchestrator.replicas.transport.peer import Peer


class Reservation:
    """A call's slot at ``peer``, taken at construction and freed by ``release``, or at the end of a
    ``with`` block."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._cancelled = False
        self._over = False
        peer.num_outstanding += 1

    def cancel(self) -> None:
        """Free the slot of a call that is about to be cancelled, so that another call may take it.

        Does nothing once the call is over.
        """
        if not (self._cancelled or self._over):
            self._cancelled = True
            self.peer.num_outstanding -= 1
            self.peer.num_ending += 1

    @property
    def wanted(self) -> bool:
        """True if the answer of the call is still wanted."""
        return not (self._cancelled or self._over)

    def release(self) -> None:
        """Free the slot of a call that is over."""
        if self._over:
            return
        self._over = True
        if self._cancelled:
            self.peer.num_ending -= 1
        else:
            self.peer.num_outstanding -= 1

    def __enter__(self) -> Peer:
        return self.peer

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
