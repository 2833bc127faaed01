"""Learns latencies and load from the answered verifications of one request."""

from __future__ import annotations

import asyncio

from specmesh.mesh.v1alpha1 import verifier_pb2
from specmesh.orchestrator.admission.room import Spent
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.calls.verify.next_drafts import num_levels
from specmesh.orchestrator.replicas.calls.verify.verify_attempt import VerifyAttempt
from specmesh.orchestrator.replicas.latencies.observations import ReplicaCost, TimedVerification
from specmesh.orchestrator.replicas.latencies.patience import CallPatience
from specmesh.orchestrator.replicas.transport.peer import Peer

COMPILE_SECONDS = 1.0
"""The longest for which a replica may have a request's first call wait for the grammar to be
compiled, as would any other. Until then such a call is not late."""
USUAL_PACE = 1.0
"""The pace of a call at a replica that has left, whose paces are forgotten."""


class VerifyLearning:
    """Tells latencies and admission control what verifications take."""

    def __init__(self, request: RequestContext) -> None:
        self.num_cached_tokens: int | None = None
        """Tokens that the replica which answered first already held; None before that."""
        self._request = request
        self._mesh = request.mesh
        self._latencies = request.mesh.latencies

    def answered(
        self, attempt: VerifyAttempt, response: verifier_pb2.VerifyResponse, began: float
    ) -> float:
        """Learn from the answer to ``attempt``; return the attempt's pace. The first attempt of the
        verification ``began`` then."""
        now, cost = asyncio.get_running_loop().time(), attempt.cost
        if self.num_cached_tokens is None:
            self.num_cached_tokens = response.cost.num_cached_tokens
        waited_s = self._waited_s(attempt.peer, cost, now)
        seconds = cost.forward_s + waited_s if attempt.is_further else now - began
        num_tokens = 1 + len(response.collected_token_ids)
        self._admit(response, cost, seconds, now, num_tokens)
        return self._observe(attempt, response, cost, waited_s, now)

    def late_after(self, attempt: VerifyAttempt) -> float:
        """Return the seconds after which an answer to ``attempt`` is late."""
        late_s = self._patience(attempt).late_after(attempt.num_sent_tokens)
        if attempt.is_further:
            late_s += attempt.collect_s
        if self._request.sampling.grammar is not None and self.num_cached_tokens is None:
            late_s += COMPILE_SECONDS
        return late_s

    def given_up_after(self, attempt: VerifyAttempt, num_ahead: int, num_late: int) -> float:
        """Return the seconds after which to give up ``attempt``, queued behind ``num_ahead`` others
        and after ``num_late`` timed-out ones."""
        num_tokens = 1 if attempt.is_further else attempt.num_tokens
        collect_s = attempt.collect_s if attempt.is_further else 0.0
        patience = self._patience(attempt)
        return patience.given_up_after(num_tokens, num_ahead, num_late) + collect_s

    def _waited_s(self, peer: Peer, cost: ReplicaCost, now: float) -> float:
        """Return how long a response waited, 0 if its replica has left: its clock is forgotten."""
        if peer.has_left:
            return 0.0
        return self._latencies.waits.add(peer.address, cost.computed_at_s, now)

    def _observe(
        self,
        attempt: VerifyAttempt,
        response: verifier_pb2.VerifyResponse,
        cost: ReplicaCost,
        waited_s: float,
        now: float,
    ) -> float:
        seconds = cost.without_grammar(now - attempt.began)
        if attempt.is_further:
            seconds = max(cost.forward_s, seconds - attempt.collect_s)
        if self._request.num_node_logprobs is None:  # a text that is scored is no draft
            self._latencies.verified(
                TimedVerification(
                    *(seconds, attempt.num_tree_tokens, cost),
                    heads_s=response.next_draft.cost.forward_ms / 1e3,
                    num_heads_levels=num_levels(response.next_draft),
                    num_heads_nodes=len(response.next_draft.token_ids),
                    is_further=attempt.is_further,
                    behind_s=waited_s / attempt.num_further if attempt.is_further else 0.0,
                    waited_s=waited_s,
                )
            )
        if attempt.peer.has_left:
            return USUAL_PACE
        num_computed = cost.num_computed_tokens or attempt.num_sent_tokens
        if attempt.is_further:
            num_computed = 1  # of those that were collected, the last is what it was waited for
        return self._patience(attempt).add(attempt.peer.address, num_computed, seconds)

    def _patience(self, attempt: VerifyAttempt) -> CallPatience:
        """Return the timeouts of what the attempt awaits: further tokens come without a hop."""
        latencies = self._latencies
        return latencies.further if attempt.is_further else latencies.verifications

    def _admit(
        self,
        response: verifier_pb2.VerifyResponse,
        cost: ReplicaCost,
        seconds: float,
        now: float,
        num_tokens: int,
    ) -> None:
        """Report the ``seconds`` of a verification, failed attempts included, to admission control,
        once for each of ``num_tokens`` own tokens that it brought."""
        forward_ms = cost.forward_s * 1e3 + response.next_draft.cost.forward_ms
        total_ms = cost.without_grammar(seconds) * 1e3
        calls = cost.num_batch_calls, cost.num_worthwhile_calls
        spent = Spent.of(total_ms, cost.queue_s * 1e3, forward_ms, *calls)
        self._mesh.admission.verified(len(self._mesh.verifiers.ready), spent, now, num_tokens)
