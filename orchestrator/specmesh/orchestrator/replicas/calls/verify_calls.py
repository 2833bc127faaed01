"""The calls of one request to replicas of the target.

Verify is a pure function, so a failed call is retried on another replica, and a late call is
hedged: sent to a second replica as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import grpc
import grpc.aio

from specmesh.decoding.bonus import MAX_BONUS_CANDIDATES
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.best_chain import BestChain
from specmesh.mesh.v1alpha1 import cost_pb2, verifier_pb2
from specmesh.orchestrator.admission.controller import Admission, Spent
from specmesh.orchestrator.replicas.calls.call_context import CallContext
from specmesh.orchestrator.replicas.calls.next_drafts import (
    read_next_draft,
    seconds_per_level,
    write_next_draft,
)
from specmesh.orchestrator.replicas.calls.traced_tokens import TracedTokens
from specmesh.orchestrator.replicas.latencies.running_medians import Latencies
from specmesh.orchestrator.replicas.need import Need
from specmesh.orchestrator.replicas.pool.examination import METHOD, is_healthy
from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.orchestrator.replicas.pool.reservation import Reservation
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.retries.attempts import Attempts
from specmesh.orchestrator.replicas.retries.faults import CallFault, fault_of
from specmesh.orchestrator.replicas.retries.hedging import Hedge, HedgeBudget
from specmesh.orchestrator.replicas.transport.open_call import call_error
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.orchestrator.strategies.base import Drafted, Verified, Verify
from specmesh.serving import conventions as names
from specmesh.serving.codec.verdicts import VerificationRequest, read_verdict
from specmesh.serving.codec.wire import write_sampling, write_tree
from specmesh.serving.errors import DeadlineExceededStatus, FailedPreconditionStatus
from specmesh.serving.telemetry.pipeline import client_span
from specmesh.v1 import model_pb2

log = logging.getLogger(__name__)

_hedges = names.HEDGES.instrument()


class VerifyCalls:
    """Requests verifications. ``deadline`` is the request's, by the event loop's clock. Replicas
    must meet ``need`` and be able to hold the call's tokens. ``num_top_logprobs`` is the number of
    tokens listed in each verdict's ``logprobs``, None for no log-probabilities; ``epoch`` is the
    session's."""

    def __init__(
        self,
        pool: Pool,
        latencies: Latencies,
        hedges: HedgeBudget,
        admission: Admission,
        prefix: CommittedPrefix,
        sampling: Sampling,
        *,
        vocab_size: int,
        deadline: float,
        need: Need,
        num_top_logprobs: int | None,
        epoch: int,
        tokens: TracedTokens | None,
    ) -> None:
        self.num_cached_tokens: int | None = None
        """Tokens that the replica which answered first already held; None before that."""
        self._pool = pool
        self._latencies = latencies
        self._hedges = hedges
        self._admission = admission
        self._prefix = prefix
        self._sampling = sampling
        self._sampling_message = write_sampling(sampling)
        self._vocab_size = vocab_size
        self._deadline = deadline
        self._need = need
        self._num_top_logprobs = num_top_logprobs
        self._epoch = epoch
        self._tokens = tokens
        self._reservations: list[Reservation] = []
        """Slots of the verifications under way."""

    async def verify(self, command: Verify, context: CallContext) -> Verified:
        """Return the target's verdict, with the draft of its heads if one was requested.

        Raises ``AioRpcError`` or ``ServiceError`` once there is no replica left to try, or no time.
        """
        loop = asyncio.get_running_loop()
        attempts = Attempts(
            *(self._pool, self._prefix, self._deadline),
            replace(
                self._need,
                num_tokens=context.num_committed + len(command.path) + len(command.tree),
            ),
            is_healthy=lambda peer: self._is_healthy(peer, context),
            wanted=_wanted(command),
        )
        with closing(attempts), self._admission.verifying(len(command.tree) + 1):
            while True:
                if not attempts.has_ready_replica:
                    timeout_s = min(
                        self._pool.patience_s(has_begun=True), self._deadline - loop.time()
                    )
                    await attempts.wait_ready(timeout_s)
                    self._check_target()
                verified = await self._hedged(command, context, attempts)
                if verified is not None:
                    self._hedges.earn()
                    return verified
                await attempts.pause()

    async def _hedged(
        self, command: Verify, context: CallContext, attempts: Attempts
    ) -> Verified | None:
        """Make one attempt, and a hedge of it if it is late; return None if they failed."""
        with self._held(self._reserve(attempts), context) as peer:
            began = asyncio.get_running_loop().time()
            late_s = self._latencies.verifications.late_after(
                self._prefix.num_to_send(peer.identity, context.num_committed)
                + len(command.path)
                + len(command.tree)
            )
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

    def _reserve(self, attempts: Attempts) -> Reservation:
        """Reserve a replica. While another verification of the request is under way, any free
        replica is preferred over one that holds the prefix, so that both run in parallel."""
        if any(each.wanted for each in self._reservations):
            return attempts.reserve()
        return attempts.reserve(self._latencies.prefill.tokens_a_call)

    @contextmanager
    def _held(self, reservation: Reservation, context: CallContext) -> Iterator[Peer]:
        self._reservations.append(reservation)
        try:
            with context.cancellation.calling(reservation.cancel), reservation as peer:
                yield peer
        finally:
            self._reservations.remove(reservation)

    def _may_hedge(self, peer: Peer, attempts: Attempts) -> bool:
        if not attempts.can_reserve_another(peer):
            return False
        # Waiting for an ejected replica is useless, so this hedge needs no budget.
        if self._pool.outliers.is_ejected(peer.address):
            return True
        return self._hedges.spend()

    async def _try_elsewhere(
        self, late: Peer, command: Verify, context: CallContext, attempts: Attempts
    ) -> Verified | None:
        with self._held(attempts.reserve_another(late), context) as peer:
            return await self._try(peer, command, context, attempts, hedge=True)

    async def _is_healthy(self, peer: Peer, context: CallContext) -> bool:
        latest_s = self._latencies.verifications.given_up_after(1, peer.num_outstanding, 0)
        deadline = min(self._deadline, asyncio.get_running_loop().time() + latest_s)
        return await is_healthy(peer, self._vocab_size, deadline, context.parent)

    def _check_target(self) -> None:
        served, began_with = self._pool.kinds, self._need.kind
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
        context: CallContext,
        attempts: Attempts,
        *,
        hedge: bool = False,
    ) -> Verified | None:
        """Make one attempt; return None if it failed, raise if it must not be retried."""
        chain = None
        if not (command.tree.is_chain or peer.can(model_pb2.MODEL_FEATURE_TREES)):
            chain = BestChain.of(command.tree, command.distributions)
            command = replace(command, tree=chain.tree, distributions=chain.distributions)
        loop = asyncio.get_running_loop()
        began = loop.time()
        num_tokens = context.num_committed + len(command.path) + len(command.tree)
        given_up_s = self._latencies.verifications.given_up_after(
            num_tokens, peer.num_outstanding - 1, attempts.num_late
        )
        attributes = {
            names.DRAFT_TOKENS: len(command.tree),
            names.HEDGE: hedge,
            **context.cause.attributes(),
            **peer.attributes,
        }
        try:
            with client_span(METHOD, peer.address, attributes, context.parent) as (span, carrier):
                span.update_name(names.VERIFY_SPAN)
                asked = self._asked(peer, command, context)
                message = self._message(peer, command, context, asked, carrier)
                deadline = min(self._deadline, began + given_up_s)
                async with peer.verifications.send(message, deadline) as exchange:
                    response = (await exchange.read()).response
                span.set_attribute(names.ACCEPTED, len(response.accepted_nodes))
                verified = self._read(command, response, asked, peer)
                if verified.next_draft is not None:
                    span.set_attribute(names.HEADS_TOKENS, len(verified.next_draft.token_ids))
                    span.set_attribute(names.HEADS_MS, response.next_draft.cost.forward_ms)
                if self._tokens is not None:
                    span.set_attributes(
                        self._tokens.judged(
                            context.num_committed, command.path, command.tree, verified.verdict
                        )
                    )
        except grpc.aio.AioRpcError as error:
            if loop.time() >= self._deadline:
                raise DeadlineExceededStatus(
                    "DEADLINE", "the request's deadline has passed"
                ) from error
            if fault_of(error) is CallFault.BUSY:
                self._admission.refused()
            attempts.failed(peer, began, error)
            return None
        pace = self._observe(peer, message.request, response, loop.time() - began)
        attempts.answered(peer, began, pace)
        if self.num_cached_tokens is None:
            self.num_cached_tokens = response.cost.num_cached_tokens
        self._admit(response, loop.time() - attempts.began)
        self._prefix.seen_by(peer.identity, context.num_committed)
        if chain is not None:
            verdict = chain.in_tree(verified.verdict)
            return replace(verified, verdict=verdict, tried=chain.nodes)
        return verified

    def _asked(self, peer: Peer, command: Verify, context: CallContext) -> VerificationRequest:
        wants_bonus = (
            self._sampling.mode is AcceptanceMode.REJECTION
            and command.drafting_on
            and peer.can(model_pb2.MODEL_FEATURE_BONUS_DISTRIBUTION)
            # A verdict only has the log-probabilities of its own bonus token.
            and self._num_top_logprobs is None
        )
        return VerificationRequest(
            command.tree,
            context.num_committed + len(command.path),
            self._sampling,
            self._vocab_size,
            MAX_BONUS_CANDIDATES if wants_bonus else 0,
            self._num_top_logprobs,
        )

    def _message(
        self,
        peer: Peer,
        command: Verify,
        context: CallContext,
        asked: VerificationRequest,
        carrier: dict[str, str],
    ) -> verifier_pb2.VerifyEachRequest:
        request = verifier_pb2.VerifyRequest(
            prefix=self._prefix.message(peer.identity, context.num_committed, command.path),
            tree=write_tree(command.tree, command.distributions),
            sampling=self._sampling_message,
            num_bonus_candidates=asked.num_bonus_candidates,
            num_top_logprobs=asked.num_top_logprobs,
            next_draft=write_next_draft(command, self._sampling, self._epoch)
            if peer.can(model_pb2.MODEL_FEATURE_HEADS)
            else None,
        )
        return verifier_pb2.VerifyEachRequest(request=request, trace_context=carrier)

    def _read(
        self,
        command: Verify,
        response: verifier_pb2.VerifyResponse,
        asked: VerificationRequest,
        peer: Peer,
    ) -> Verified:
        """Parse the answer; an invalid one counts as the replica's failure and is retried."""
        try:
            verdict = read_verdict(response, asked)
        except InvalidField as error:
            log.warning("bad verdict", extra={**peer.log_fields, "reason": str(error)})
            raise call_error(grpc.StatusCode.INTERNAL, f"bad verdict: {error}") from error
        return Verified(command.task, verdict, self._draft(command, response, peer))

    def _draft(
        self, command: Verify, response: verifier_pb2.VerifyResponse, peer: Peer
    ) -> Drafted | None:
        """Return the draft of the replica's heads. An invalid draft is dropped, because the verdict
        is good without it."""
        try:
            return read_next_draft(response, command, self._sampling, self._vocab_size)
        except InvalidField as error:
            log.warning("bad draft", extra={**peer.log_fields, "reason": str(error)})
            response.ClearField("next_draft")
            return None

    def _observe(
        self,
        peer: Peer,
        request: verifier_pb2.VerifyRequest,
        response: verifier_pb2.VerifyResponse,
        seconds: float,
    ) -> float:
        """Record the time that a call took, and return its pace."""
        latencies, num_drafted, cost = self._latencies, len(request.tree.token_ids), response.cost
        heads_s = response.next_draft.cost.forward_ms / 1e3
        level_s = seconds_per_level(response.next_draft)
        if level_s is not None:
            latencies.heads_s.add(level_s)
        max_tokens = request.prefix.base_length + len(request.prefix.token_ids) + num_drafted
        # Prefix tokens that the replica lacked take as long to compute as those of the tree.
        num_computed = min(cost.num_computed_tokens, max_tokens)
        target_s = max(0.0, seconds - heads_s)
        latencies.target_s.add(target_s)
        latencies.target_token_s.add(num_computed or num_drafted, target_s)
        latencies.target_load.add(_load(cost))
        latencies.prefill.add(num_computed - num_drafted - 1, cost.forward_ms / 1e3)
        num_sent = len(request.prefix.token_ids) + num_drafted
        return latencies.verifications.add(peer.address, num_computed or num_sent, seconds)

    def _admit(self, response: verifier_pb2.VerifyResponse, seconds: float) -> None:
        """Report the time of a verification, failed attempts included, to admission control."""
        forward_ms = response.cost.forward_ms + response.next_draft.cost.forward_ms
        spent = Spent.of(seconds * 1e3, response.cost.queue_ms, forward_ms)
        self._admission.verified(len(self._pool.ready), spent)


def _wanted(command: Verify) -> model_pb2.ModelFeature.ValueType | None:
    """Return the feature that is preferred among equally busy replicas; None if any will do."""
    if command.next_draft:
        return model_pb2.MODEL_FEATURE_HEADS
    return None if command.tree.is_chain else model_pb2.MODEL_FEATURE_TREES


def _load(cost: cost_pb2.ComputeCost) -> float:
    """Return the time that a call waited at the replica divided by its forward time, at most 1."""
    return cost.queue_ms / cost.forward_ms if cost.queue_ms < cost.forward_ms else 1.0
