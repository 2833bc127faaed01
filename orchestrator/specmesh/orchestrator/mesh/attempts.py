"""Which replica a call goes to, and whether and when it is sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

import grpc
import grpc.aio
from opentelemetry import metrics

from specmesh.orchestrator.mesh.blame import Blame
from specmesh.orchestrator.mesh.faults import CallFault, fault_of
from specmesh.orchestrator.mesh.outliers import Cause
from specmesh.orchestrator.mesh.peer import Peer
from specmesh.orchestrator.mesh.pool import Pool, Reservation
from specmesh.orchestrator.mesh.prefix import CommittedPrefix
from specmesh.serving.errors import FailedPrecondition, retry_after_s

MAX_ATTEMPTS = 6
"""Tries of a call, if there are no more replicas than that."""
PAUSE_SECONDS = 0.05
MAX_BUSY_SECONDS = 1.0
"""How long a replica whose queue is full is left alone, unless it asks for more."""
LIVES_SECONDS = 1.0
"""How long a replica whose connection broke may take to say that it lives."""

_quarantines = metrics.get_meter("specmesh.orchestrator").create_counter(
    "specmesh.quarantined.calls",
    unit="{call}",
    description="calls that broke several replicas in turn and were tried nowhere else",
)


class Quarantined(FailedPrecondition):
    """The request breaks one replica after the other."""

    def __init__(self, num_broken: int, num_replicas: int, num_attempts: int) -> None:
        super().__init__(
            "REQUEST_BREAKS_REPLICAS",
            f"{num_broken} of {num_replicas} replicas broke on this request, one after the other; "
            "it is tried nowhere else",
            {
                "num_broken": str(num_broken),
                "num_replicas": str(num_replicas),
                "num_attempts": str(num_attempts),
            },
        )


class Attempts:
    """The tries of one call. ``deadline`` is the request's, by the event loop's clock.

    ``kind`` names the model that must answer, None any of the pool. ``is_well`` asks a replica
    for something harmless: a request is found guilty of breaking replicas by one that answers
    this and then breaks once more. None: suspicion is enough. ``patient``: those that failed are
    asked again once nobody else is left.
    """

    def __init__(
        self,
        pool: Pool,
        prefix: CommittedPrefix,
        deadline: float,
        kind: str | None = None,
        *,
        is_well: Callable[[Peer], Awaitable[bool]] | None = None,
        patient: bool = True,
    ) -> None:
        self._pool = pool
        self._kind = kind
        self._prefix = prefix
        self._deadline = deadline
        self._is_well = is_well
        self._patient = patient
        self._blame = Blame(pool.outliers, prefix.session_id)
        self._failed_at: set[str] = set()
        self._forgetful: set[str] = set()
        self._charges: list[tuple[Peer, float, Cause]] = []
        """Failures that are the replicas', unless the call turns out to be the cause."""
        self._error: grpc.aio.AioRpcError | None = None
        self._accuser: Peer | None = None
        """The replica on whose word the request is suspected, until it is asked whether it is
        well."""
        self._witness: Peer | None = None
        """The accuser that is well: it alone is asked next."""
        self._recovery_s = 0.0
        """How long to wait if nobody is left who hasn't failed."""
        self.began = asyncio.get_running_loop().time()
        self._num_busy = 0
        self.num_failed = 0
        """Tries so far."""
        self.num_late = 0
        """Those of them that had no answer in time."""

    def reserve(self) -> Reservation:
        """A place at the replica for the next try; raises as ``Pool.reserve``."""
        return self._pool.reserve(
            self._prefix.holds,
            self._failed_at,
            self._kind,
            only=self._only,
            proven=self._blame.second_opinion,
        )

    def can_reserve_another(self, peer: Peer) -> bool:
        """Whether somebody else than ``peer`` may be asked who hasn't failed."""
        return self._witness is None and self._untried({*self._failed_at, peer.address})

    def reserve_another(self, peer: Peer) -> Reservation:
        """A place for the same try at another replica; raises as ``Pool.reserve``."""
        avoid = {*self._failed_at, peer.address}
        return self._pool.reserve(
            self._prefix.holds, avoid, self._kind, only=self._blame.confined_to
        )

    @property
    def somebody_is_ready(self) -> bool:
        """Whether there is a replica for the next try."""
        return bool(self._pool.ready_for(self._kind, self._blame.confined_to))

    @property
    def _only(self) -> Collection[str] | None:
        """Where alone the next try may be made; None: anywhere."""
        if self._witness is not None and self._witness.ready:
            return {self._witness.address}
        return self._blame.confined_to

    async def wait_ready(self, patience_s: float) -> None:
        """Return once a replica has come up, or the time is up.

        Raises ``FailedPrecondition`` if only such are ready as the call must not break.
        """
        only = self._blame.confined_to
        with suppress(TimeoutError):  # the reservation that follows says who is missing
            await asyncio.wait_for(self._pool.wait_ready(only), patience_s)
        if only is not None and self._pool.ready and not self.somebody_is_ready:
            raise self._quarantined()

    def answered(self, peer: Peer, began: float, pace: float | None = None) -> None:
        """``peer`` has answered a try begun at ``began``: those that failed are to blame."""
        self.close()
        self._pool.answered(peer, began, pace)

    def overtaken(self, peer: Peer, began: float) -> None:
        """A try at ``peer`` had no answer when a later one had."""
        self._charges.append((peer, began, Cause.LATENCY))

    def failed(self, peer: Peer, began: float, error: grpc.aio.AioRpcError) -> None:
        """Take in that a try failed. Raises if another one would be useless, or do harm."""
        self.num_failed += 1
        self._error = error
        fault = fault_of(error)
        if fault is CallFault.FORGOTTEN and peer.address not in self._forgetful:
            self._forgetful.add(peer.address)
            self._prefix.forgotten_by(peer.address)
            self._recovery_s = 0.0
            return
        self._failed_at.add(peer.address)
        self._recovery_s = PAUSE_SECONDS * 2**self.num_failed
        if fault is CallFault.TOO_SMALL and not self._untried(self._failed_at):
            raise error
        if fault in {CallFault.BUSY, CallFault.TOO_SMALL}:
            self._num_busy += fault is CallFault.BUSY
            asked_s = retry_after_s(error) or PAUSE_SECONDS
            backoff_s = min(MAX_BUSY_SECONDS, asked_s * 2 ** min(self._num_busy, 10))
            self._recovery_s = max(asked_s, backoff_s)
        else:
            self._prefix.forgotten_by(peer.address)
            late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            self.num_late += late
            self._charges.append((peer, began, Cause.LATENCY if late else Cause.ERRORS))
            self._find_blame(fault, peer, error)
            self._witness = None

    async def pause(self) -> None:
        """Return when the call may be tried again; raise its error if that is useless."""
        assert self._error is not None
        if self._blame.confined_to is not None:
            await self._look_for_survivors()
        if self._blame.deadly:
            raise self._quarantined()
        accuser, self._accuser = self._accuser, None
        if accuser is not None and self._is_well is not None and await self._is_well(accuser):
            self._witness = accuser
            return
        # A full queue is no failure: what has begun waits, for as long as its deadline lets it.
        num_failed = self.num_failed - self._num_busy
        given_up = num_failed >= MAX_ATTEMPTS or not self._patient
        untried = self._untried(self._failed_at)
        if given_up and not untried:
            raise self._error
        pause_s = 0.0 if untried else self._recovery_s
        if asyncio.get_running_loop().time() + pause_s >= self._deadline:
            raise self._error
        await asyncio.sleep(pause_s)

    def close(self) -> None:
        """The call is over, however it ended: what failed is held against the replicas."""
        for peer, began, cause in self._charges:
            self._pool.failed(peer, began, cause)
        self._charges.clear()

    def _find_blame(self, fault: CallFault, peer: Peer, error: grpc.aio.AioRpcError) -> None:
        match fault:
            case CallFault.REFUSED:
                agreed = self._blame.refused()
                if agreed or not self._untried(self._failed_at):
                    self._charges.clear()
                    raise error
            case CallFault.BROKE | CallFault.FORGOTTEN if self._blame.broke(peer.address):
                # Replicas that have all fallen ill at once break on anything.
                if self._is_well is None or peer is self._witness:
                    raise self._quarantined()
                self._accuser = peer
            case CallFault.LOST:
                self._blame.lost(peer.address, peer.num_starts)

    async def _look_for_survivors(self) -> None:
        """A replica whose process serves on has not died of the call."""
        lost = [p for p in self._pool.peers if self._blame.may_have_killed(p.address, p.num_starts)]
        left_s = self._deadline - asyncio.get_running_loop().time()
        timeout_s = max(0.0, min(LIVES_SECONDS, left_s))
        alive = await asyncio.gather(*(peer.serves_on(timeout_s) for peer in lost))
        for peer, lives in zip(lost, alive, strict=True):
            if lives:
                self._blame.survived(peer.address, peer.num_starts)

    def _quarantined(self) -> Quarantined:
        self._charges.clear()
        self._blame.found_guilty()
        _quarantines.add(1)
        return Quarantined(len(self._blame.broken), len(self._pool.peers), self.num_failed)

    def _untried(self, tried: Collection[str]) -> bool:
        only = self._blame.confined_to
        usable = self._pool.usable(self._kind)
        return any(p.address not in tried for p in usable if only is None or p.address in only)
