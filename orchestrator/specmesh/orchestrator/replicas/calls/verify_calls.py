"""The calls of one request to replicas of the target.

Verify is a pure function, so a failed call is retried on another replica, and a late call is
hedged: sent to a second replica as well.
"""

from __future__ import annotations

import asyncio

import grpc.aio

from specmesh.mesh.v1alpha1 import verifier_pb2
from specmesh.orchestrator.admission.room import Spent
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.costs import read_cost
from specmesh.orchestrator.replicas.calls.next_drafts import num_levels
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.calls.verify_attempt import VerifyAttempt
from specmesh.orchestrator.replicas.latencies.observations import ReplicaCost, TimedVerification
from specmesh.orchestrator.replicas.pool.examination import is_healthy
from specmesh.orchestrator.replicas.pool.reservation import Reservation
from specmesh.orchestrator.replicas.retries.attempts import Attempts
from specmesh.orchestrator.replicas.retries.faults import CallFault, fault_of
from specmesh.orchestrator.replicas.retries.hedging import Hedge
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.orchestrator.strategies.commands import Verify
from specmesh.orchestrator.strategies.events import Verified
from specmesh.serving import conventions as names
from specmesh.serving.errors import DeadlineExceededStatus, FailedPreconditionStatus, error_info
from specmesh.serving.metrics import HEDGES
from specmesh.v1 import model_pb2

COMPILE_SECONDS = 1.0
"""The longest for which a replica may have a request's first call wait for the grammar to be
compiled, as would any other. Until then such a call is not late."""

_hedges = HEDGES.instrument()


class VerifyCalls:
    """Requests verifications, of replicas that can hold the call's tokens."""

    def __init__(self, request: RequestContext) -> None:
        self.num_cached_tokens: int | None = None
        """Tokens that the replica which answered first already held; None before that."""
        self._request = request
        self._mesh = request.mesh
        self._pool = request.mesh.verifiers
        self._latencies = request.mesh.latencies
        self._reservations: list[Reservation] = []
        """Slots of verifications, all that are under way among them."""

    async def verify(self, command: Verify, context: CommandContext) -> Verified:
        """Return the target's verdict, with the draft of its heads if one was requested.

        Raises ``AioRpcError`` or ``ServiceError`` once there is no replica left to try, or no time.
        """
        loop = asyncio.get_running_loop()
        attempts = Attempts(
            *(self._pool, self._request.prefix, self._request.deadline),
            self._request.need.of_tokens(
                context.num_committed + len(command.path) + len(command.tree)
            ),
            is_healthy=lambda peer: self._is_healthy(peer, context),
            wanted=_wanted(command),
        )
        num_nodes = len(command.tree) + 1
        self._mesh.admission.num_tokens_in_flight += num_nodes
        try:
            while True:
                if not attempts.has_ready_replica:
                    patience_s = self._pool.patience_s(has_begun=True)
                    left_s = self._request.deadline - loop.time()
                    await attempts.wait_ready(min(patience_s, left_s))
                    self._check_target()
                verified = await self._hedged(command, context, attempts)
                if verified is not None:
                    self._mesh.hedges.earn()
                    return verified
                await attempts.pause()
        finally:
            self._mesh.admission.num_tokens_in_flight -= num_nodes
            attempts.close()

    async def _hedged(
        self, command: Verify, context: CommandContext, attempts: Attempts
    ) -> Verified | None:
        """Make one attempt, and a hedge of it if it is late; return None if they failed."""
        reservation = self._reserve(attempts)
        with context.cancellation.calling(reservation.cancel), reservation as peer:
            began = asyncio.get_running_loop().time()
            late_s = self._latencies.verifications.late_after(
                self._request.prefix.num_to_send(peer.identity, context.num_committed)
                + len(command.path)
                + len(command.tree)
            )
            if self._request.sampling.grammar is not None and self.num_cached_tokens is None:
                late_s += COMPILE_SECONDS
            hedge = Hedge(
                late_s,
                may_begin=lambda: self._may_hedge(peer, attempts),
                second=lambda: self._try_elsewhere(peer, command, context, attempts),
            )
            try:
                return await hedge.race(self._try(peer, command, context, attempts))
            finally:
                if hedge.overtaken:
                    attempts.overtaken(peer, began)
                if hedge.begun:
                    _hedges.add(1, {names.HEDGE_WON: hedge.overtaken})

    def _reserve(self, attempts: Attempts, beside: Peer | None = None) -> Reservation:
        """Reserve a replica, for a hedge one ``beside`` that of the first attempt. While another
        verification of the request is under way, any free replica is preferred over one that holds
        the prefix, so that both run in parallel."""
        others = [each for each in self._reservations if each.wanted]
        if beside is not None:
            reservation = attempts.reserve_another(beside)
        elif others:
            reservation = attempts.reserve()
        else:
            reservation = attempts.reserve(self._latencies.prefill.tokens_a_call)
        self._reservations = [*others, reservation]
        return reservation

    def _may_hedge(self, peer: Peer, attempts: Attempts) -> bool:
        if not attempts.can_reserve_another(peer):
            return False
        # Waiting for an ejected replica is useless, so this hedge needs no budget.
        if self._pool.outliers.is_ejected(peer.address):
            return True
        return self._mesh.hedges.spend()

    async def _try_elsewhere(
        self, late: Peer, command: Verify, context: CommandContext, attempts: Attempts
    ) -> Verified | None:
        reservation = self._reserve(attempts, late)
        with context.cancellation.calling(reservation.cancel), reservation as peer:
            return await self._try(peer, command, context, attempts, hedge=True)

    async def _is_healthy(self, peer: Peer, context: CommandContext) -> bool:
        latest_s = self._latencies.verifications.given_up_after(1, peer.num_outstanding, 0)
        deadline = min(self._request.deadline, asyncio.get_running_loop().time() + latest_s)
        return await is_healthy(peer, self._request.vocab_size, deadline, context.parent)

    def _check_target(self) -> None:
        served, began_with = self._pool.kinds, self._request.need.kind
        if began_with is not None and served and began_with not in served:
            raise FailedPreconditionStatus(
                "TARGET_REPLACED",
                f"the answer began with {began_with}, but the mesh now serves {served[0]}",
                {"began_with": began_with, "served": served[0]},
            )

    async def _try(
        self,
        peer: Peer,
        command: Verify,
        context: CommandContext,
        attempts: Attempts,
        *,
        hedge: bool = False,
    ) -> Verified | None:
        """Make one attempt; return None if it failed, raise if it must not be retried."""
        loop, deadline = asyncio.get_running_loop(), self._request.deadline
        began = loop.time()
        attempt = VerifyAttempt(self._request, peer, command, context)
        given_up_s = self._latencies.verifications.given_up_after(
            attempt.num_tokens, peer.num_outstanding - 1, attempts.num_late
        )
        try:
            verified, request, response = await attempt.send(
                min(deadline, began + given_up_s), hedge=hedge
            )
        except grpc.aio.AioRpcError as error:
            if loop.time() >= deadline:
                raise DeadlineExceededStatus(
                    "DEADLINE", "the request's deadline has passed"
                ) from error
            if fault_of(error) is CallFault.BUSY and not _waits_for_grammar(error):
                self._mesh.admission.refused(loop.time())
            attempts.failed(peer, began, error)
            return None
        num_sent = len(request.prefix.token_ids) + len(request.tree.token_ids)
        cost = read_cost(response.cost, request.prefix.base_length + num_sent)
        pace = self._observe(peer, num_sent, request, response, cost, loop.time() - began)
        attempts.answered(peer, began, pace)
        if self.num_cached_tokens is None:
            self.num_cached_tokens = response.cost.num_cached_tokens
        self._admit(response, cost, attempts.began, loop.time())
        self._request.prefix.seen_by(peer.identity, context.num_committed)
        return verified

    def _observe(
        self,
        peer: Peer,
        num_sent: int,
        request: verifier_pb2.VerifyRequest,
        response: verifier_pb2.VerifyResponse,
        cost: ReplicaCost,
        seconds: float,
    ) -> float:
        """Record the time that a call of ``num_sent`` tokens took, and return its pace."""
        seconds = cost.without_grammar(seconds)
        if self._request.num_node_logprobs is None:  # a text that is scored is no draft
            self._latencies.verified(
                TimedVerification(
                    *(seconds, len(request.tree.token_ids), cost),
                    heads_s=response.next_draft.cost.forward_ms / 1e3,
                    num_heads_levels=num_levels(response.next_draft),
                    num_heads_nodes=len(response.next_draft.token_ids),
                )
            )
        num_computed = cost.num_computed_tokens or num_sent
        return self._latencies.verifications.add(peer.address, num_computed, seconds)

    def _admit(
        self, response: verifier_pb2.VerifyResponse, cost: ReplicaCost, began: float, now: float
    ) -> None:
        """Report the time of a verification, failed attempts included, to admission control."""
        forward_ms = cost.forward_s * 1e3 + response.next_draft.cost.forward_ms
        total_ms = cost.without_grammar(now - began) * 1e3
        spent = Spent.of(total_ms, cost.queue_s * 1e3, forward_ms, cost.num_batch_calls)
        self._mesh.admission.verified(len(self._pool.ready), spent, now)


def _waits_for_grammar(error: grpc.aio.AioRpcError) -> bool:
    """Return whether a replica is busy with grammars alone."""
    info = error_info(error)
    return info is not None and info.reason == "COMPILER_BUSY"


def _wanted(command: Verify) -> model_pb2.ModelFeature.ValueType | None:
    """Return the feature that is preferred among equally busy replicas; None if any will do."""
    if command.next_draft:
        return model_pb2.MODEL_FEATURE_HEADS
    return None if command.tree.is_chain else model_pb2.MODEL_FEATURE_TREES
