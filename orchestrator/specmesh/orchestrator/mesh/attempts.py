"""Which replica a call goes to, and whether and when it is sent again."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

from specmesh.orchestrator.mesh.peer import Peer
from specmesh.orchestrator.mesh.pool import Pool, Reservation
from specmesh.orchestrator.mesh.prefix import CommittedPrefix
from specmesh.serving.errors import error_info, retry_after_s

MAX_ATTEMPTS = 6
PAUSE_SECONDS = 0.05

ELSEWHERE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""The replica is gone, draining or stuck: another may answer."""


class Attempts:
    """The tries of one call. ``deadline`` is the request's, by the event loop's clock.

    ``kind`` names the model that must answer, None any of the pool.
    """

    def __init__(
        self, pool: Pool, prefix: CommittedPrefix, deadline: float, kind: str | None = None
    ) -> None:
        self._pool = pool
        self._kind = kind
        self._prefix = prefix
        self._deadline = deadline
        self._failed_at: set[str] = set()
        self._num_failed = 0

    def reserve(self) -> Reservation:
        """A place at the replica for the next try; raises as ``Pool.reserve``."""
        return self._pool.reserve(self._prefix.holds, self._failed_at, self._kind)

    async def failed(self, peer: Peer, error: grpc.aio.AioRpcError) -> None:
        """Return when the call may be tried again; raise ``error`` if that is useless."""
        self._num_failed += 1
        info = error_info(error)
        pause_s = 0.0
        if info is not None and info.reason == "PREFIX_UNKNOWN":
            self._prefix.forgotten_by(peer.address)
        elif error.code() in ELSEWHERE:
            self._failed_at.add(peer.address)
            self._prefix.forgotten_by(peer.address)
            fit = (p for p in self._pool.ready if self._kind in {None, p.kind})
            if self._failed_at.issuperset(p.address for p in fit):
                pause_s = PAUSE_SECONDS * 2**self._num_failed  # nobody untried: let them recover
        elif error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            self._failed_at.add(peer.address)  # another may have room
            pause_s = retry_after_s(error) or PAUSE_SECONDS
        else:
            raise error
        resumes_at = asyncio.get_running_loop().time() + pause_s
        if self._num_failed >= MAX_ATTEMPTS or resumes_at >= self._deadline:
            raise error
        await asyncio.sleep(pause_s)
