"""Chooses the replica for each attempt of a call, and decides whether and when to retry."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

import grpc
import grpc.aio

from specmesh.orchestrator.replicas.need import ANY, Need
from specmesh.orchestrator.replicas.pool.outliers import EjectionReason
from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.orchestrator.replicas.pool.reservation import Reservation
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.retries.blame import Blame
from specmesh.orchestrator.replicas.retries.faults import CallFault, fault_of, is_full
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.serving.errors import FailedPreconditionStatus, retry_after_s
from specmesh.serving.metrics import QUARANTINES
from specmesh.v1 import model_pb2

MAX_ATTEMPTS = 6
"""Failed attempts after which a call is given up, if every usable replica has failed it."""
PAUSE_SECONDS = 0.05
"""Base of the exponential backoff between attempts."""
MAX_BUSY_SECONDS = 1.0
"""Longest backoff after a full queue, unless the replica asks for a longer one."""
ALIVE_TIMEOUT_SECONDS = 1.0
"""Timeout of the check that the process behind a broken connection is still alive."""

_quarantines = QUARANTINES.instrument()


class Quarantined(FailedPreconditionStatus):
    """The request broke one replica after another and is not retried."""

    def __init__(self, num_broken: int, num_replicas: int, num_attempts: int) -> None:
        super().__init__(
            "REQUEST_BREAKS_REPLICAS",
            f"{num_broken} of {num_replicas} replicas broke on this request, one after the other; "
            "it is not retried",
            {
                "num_broken": str(num_broken),
                "num_replicas": str(num_replicas),
                "num_attempts": str(num_attempts),
            },
        )


class Attempts:
    """The attempts of one call. ``deadline`` is the request's, by the event loop's clock.

    A failure counts against its replica once another has answered or the call has ended, and never
    if the request is found to be the cause.

    Only replicas that meet ``need`` are tried. ``is_healthy`` sends a replica a harmless request:
    the client's request is blamed once a replica answers that one and then breaks on the request
    again; without ``is_healthy``, suspicion is enough. If ``patient``, replicas that failed are
    tried again once no others are left. ``wanted`` is as in ``Pool.reserve``.
    """

    def __init__(
        self,
        pool: Pool,
        prefix: CommittedPrefix,
        deadline: float,
        need: Need = ANY,
        *,
        is_healthy: Callable[[Peer], Awaitable[bool]] | None = None,
        patient: bool = True,
        wanted: model_pb2.ModelFeature.ValueType | None = None,
    ) -> None:
        self._pool = pool
        self.need = need
        """The need that the replicas must meet that are tried; it may grow with the text."""
        self._prefix = prefix
        self._deadline = deadline
        self._is_healthy = is_healthy
        self._patient = patient
        self._wanted = wanted
        self._blame = Blame(pool.outliers, prefix.session_id)
        self._failed_at: set[str] = set()
        self._forgetful: set[str] = set()
        self._charges: list[tuple[Peer, float, EjectionReason]] = []
        """Failures to charge to replicas, unless the request turns out to be the cause."""
        self._error: grpc.aio.AioRpcError | None = None
        self._accuser: Peer | None = None
        """The replica whose failure made the request a suspect, until its health is checked."""
        self._witness: Peer | None = None
        """The accuser once it is found healthy: the next attempt goes to it alone."""
        self._recovery_s = 0.0
        """Pause before the next attempt if every usable replica has failed."""
        self.began = asyncio.get_running_loop().time()
        self._number = 0
        """Number of the latest attempt, which a hedge shares with the attempt that is late."""
        self._num_busy = 0
        self.num_failed = 0
        """Failed attempts so far."""
        self.num_late = 0
        """Failed attempts that timed out."""

    def reserve(self, tokens_a_call: float = math.inf) -> Reservation:
        """Reserve a replica for the next attempt. Raises what ``Pool.reserve`` raises."""
        if self._lost_have_left:
            self._find_successor()
        self._number += 1
        return self._pool.reserve(
            self._prefix.holds,
            self._failed_at,
            self.need,
            only=self._only,
            proven=self._blame.second_opinion,
            tokens_a_call=tokens_a_call,
            wanted=self._wanted,
        )

    def can_reserve_another(self, peer: Peer) -> bool:
        """Return whether a replica other than ``peer`` that has not failed may be tried. A call
        that may kill replicas is sent to one at a time."""
        if self._witness is not None or self._blame.may_kill:
            return False
        return self._untried({*self._failed_at, peer.address})

    def reserve_another(self, peer: Peer) -> Reservation:
        """Reserve a replica other than ``peer`` for a hedge. Raises what ``Pool.reserve`` does."""
        avoid = {*self._failed_at, peer.address}
        return self._pool.reserve(
            *(self._prefix.holds, avoid, self.need),
            only=self._blame.confined_to,
            wanted=self._wanted,
        )

    @property
    def has_ready_replica(self) -> bool:
        """True if a replica is ready for the next attempt."""
        return bool(self._pool.ready_for(self.need, self._blame.confined_to))

    @property
    def has_untried(self) -> bool:
        """True if a usable replica has not failed the call."""
        return self._untried(self._failed_at)

    @property
    def _only(self) -> Collection[str] | None:
        """The only addresses that the next attempt may go to; None means any."""
        if self._witness is not None and self._witness in self._pool.ready:
            return {self._witness.address}
        return self._blame.confined_to

    async def wait_ready(self, patience_s: float) -> None:
        """Return once a replica is ready or ``patience_s`` has passed. If those that the call is
        confined to have not returned by then, it may reach one more.

        Raises ``FailedPreconditionStatus`` if the ready replicas serve another model.
        """
        only = self._blame.confined_to
        # A replica of another model also ends the wait: it has replaced the one that is needed.
        of_any_model = self.need._replace(kind=None)
        with suppress(TimeoutError):  # the reservation that follows raises the error
            async with asyncio.timeout(patience_s):
                await self._pool.wait_ready(only, of_any_model)
        if not self.has_ready_replica:
            self._find_successor()
        self._check_target()

    def answered(self, peer: Peer, began: float, pace: float | None = None) -> None:
        """Record that ``peer`` answered an attempt begun at ``began``; charge earlier failures."""
        self.close()
        self._pool.answered(peer, began, pace)

    def overtaken(self, peer: Peer, began: float) -> None:
        """Charge ``peer``, whose late attempt was overtaken by a hedge in good time."""
        self._charges.append((peer, began, EjectionReason.LATENCY))

    def failed(self, peer: Peer, began: float, error: grpc.aio.AioRpcError) -> None:
        """Record a failed attempt. Raises its error if a retry would be useless or harmful."""
        self.num_failed += 1
        self._error = error
        fault = fault_of(error)
        if fault is CallFault.PREFIX_UNKNOWN and peer.address not in self._forgetful:
            self._forgetful.add(peer.address)
            self._prefix.forgotten_by(peer.identity)
            self._recovery_s = 0.0
            return
        self._failed_at.add(peer.address)
        self._recovery_s = PAUSE_SECONDS * 2**self.num_failed
        if fault is CallFault.TOO_SMALL and not self.has_untried:
            raise error
        if fault in {CallFault.BUSY, CallFault.TOO_SMALL}:
            self._num_busy += fault is CallFault.BUSY
            if is_full(error):
                self._pool.refused(peer, retry_after_s(error) or MAX_BUSY_SECONDS)
            asked_s = retry_after_s(error) or PAUSE_SECONDS
            backoff_s = min(MAX_BUSY_SECONDS, asked_s * 2 ** min(self._num_busy, 10))
            self._recovery_s = max(asked_s, backoff_s)
        else:
            self._prefix.forgotten_by(peer.identity)
            late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            self.num_late += late
            self._charges.append(
                (peer, began, EjectionReason.LATENCY if late else EjectionReason.ERRORS)
            )
            self._find_blame(fault, peer, error)
            self._witness = None

    async def pause(self) -> None:
        """Return when the call may be retried; raise its error if a retry is useless."""
        assert self._error is not None
        if self._blame.confined_to is not None:
            await self._look_for_survivors()
        if self._blame.deadly:
            raise self._quarantined()
        accuser, self._accuser = self._accuser, None
        if accuser is not None and self._is_healthy is not None and await self._is_healthy(accuser):
            self._witness = accuser
            return
        # A full queue is not a failure: an answer that has begun waits for it until its deadline.
        num_failed = self.num_failed - self._num_busy
        given_up = num_failed >= MAX_ATTEMPTS or not self._patient
        untried = self.has_untried
        if given_up and not untried:
            raise self._error
        pause_s = 0.0 if untried else self._recovery_s
        if asyncio.get_running_loop().time() + pause_s >= self._deadline:
            raise self._error
        await asyncio.sleep(pause_s)

    def close(self) -> None:
        """End the call, successful or not, and charge its failures to the replicas."""
        for peer, began, cause in self._charges:
            self._pool.failed(peer, began, cause)
        self._charges.clear()

    def _check_target(self) -> None:
        served, began_with = self._pool.kinds, self.need.kind
        if began_with is not None and served and began_with not in served:
            raise FailedPreconditionStatus(
                "TARGET_REPLACED",
                f"the answer began with {began_with}, but the mesh now serves {served[0]}",
                {"began_with": began_with, "served": served[0]},
            )

    def _find_blame(self, fault: CallFault, peer: Peer, error: grpc.aio.AioRpcError) -> None:
        match fault:
            case CallFault.REFUSED:
                agreed = self._blame.refused()
                if agreed or not self.has_untried:
                    self._charges.clear()
                    raise error
            case CallFault.BROKE | CallFault.PREFIX_UNKNOWN if self._blame.broke(peer.address):
                # All replicas may be failing on any request: check before blaming this one.
                if self._is_healthy is None or peer is self._witness:
                    raise self._quarantined()
                self._accuser = peer
            case CallFault.LOST:
                self._blame.lost(peer.address, peer.process_number, self._number)

    @property
    def _lost_have_left(self) -> bool:
        """True if all replicas that the call is confined to have left the mesh, and so cannot
        return."""
        only = self._blame.confined_to
        return only is not None and not any(peer.address in only for peer in self._pool.peers)

    def _find_successor(self) -> None:
        """Let a call that is confined to replicas which do not return reach one more."""
        if self._blame.confined_to is not None and (usable := self._pool.usable(self.need)):
            self._blame.succeeded(usable[0].address)

    async def _look_for_survivors(self) -> None:
        """Clear the call of having killed replicas whose process is still alive."""
        may_have_killed = self._blame.may_have_killed
        lost = [p for p in self._pool.peers if may_have_killed(p.address, p.process_number)]
        left_s = self._deadline - asyncio.get_running_loop().time()
        timeout_s = max(0.0, min(ALIVE_TIMEOUT_SECONDS, left_s))
        alive = await asyncio.gather(*(peer.serves_on(timeout_s) for peer in lost))
        for peer, lives in zip(lost, alive, strict=True):
            if lives:
                self._blame.survived(peer.address, peer.process_number)

    def _quarantined(self) -> Quarantined:
        self._charges.clear()
        self._blame.found_guilty()
        _quarantines.add(1)
        return Quarantined(len(self._blame.broken), len(self._pool.replicas), self.num_failed)

    def _untried(self, tried: Collection[str]) -> bool:
        only = self._blame.confined_to
        usable = self._pool.usable(self.need)
        return any(p.address not in tried for p in usable if only is None or p.address in only)
