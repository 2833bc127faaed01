"""One attempt of a verification at one replica, from its request to its last response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Protocol

import grpc
import grpc.aio
from opentelemetry.trace import Span, format_span_id
from opentelemetry.util.types import AttributeValue

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.trees.best_chain import BestChain
from specmesh.mesh.v1alpha1 import verifier_pb2
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.costs import read_cost
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.calls.verify.next_drafts import read_next_draft
from specmesh.orchestrator.replicas.calls.verify.verify_messages import (
    may_collect,
    read_collected,
    verification_request,
    write_verification,
)
from specmesh.orchestrator.replicas.latencies.observations import ReplicaCost
from specmesh.orchestrator.replicas.pool.examination import METHOD
from specmesh.orchestrator.replicas.pool.reservation import Reservation
from specmesh.orchestrator.replicas.transport.exchange import Sent
from specmesh.orchestrator.replicas.transport.inbox import call_error, late
from specmesh.orchestrator.strategies.commands import Verify
from specmesh.orchestrator.strategies.events import Drafted, Verified
from specmesh.serving import conventions as names
from specmesh.serving.codec.verdicts import VerificationRequest, read_verdict
from specmesh.serving.telemetry.pipeline import ClientSpan
from specmesh.v1 import model_pb2

log = logging.getLogger(__name__)


class Judge(Protocol):
    """Decides on the outcome of an attempt. Nothing that it does may raise."""

    def answered(
        self,
        attempt: VerifyAttempt,
        verified: Verified,
        response: verifier_pb2.VerifyResponse,
    ) -> None:
        """The replica has answered."""

    def failed(self, attempt: VerifyAttempt, error: grpc.aio.AioRpcError) -> None:
        """The attempt has failed, also by an invalid response or by none in time."""

    def broke(self, error: Exception) -> None:
        """Something has failed that no replica is to blame for."""


class VerifyAttempt:
    """An attempt to have a replica carry out ``command``, with the best chain of its tree if the
    replica verifies no trees. Its outcome goes to ``judge``.

    It holds its ``reservation`` until it is over. ``given_up_at`` is set by the judge.
    """

    def __init__(
        self,
        request: RequestContext,
        reservation: Reservation,
        command: Verify,
        context: CommandContext,
        judge: Judge,
    ) -> None:
        self.reservation = reservation
        self.peer = peer = reservation.peer
        self.began = asyncio.get_running_loop().time()
        self.given_up_at = inf
        """The time at which to give up the attempt, by the event loop's clock."""
        self._request = request
        self._context = context
        self._judge = judge
        self._chain: BestChain | None = None
        self._call: ClientSpan | None = None
        self._sent: Sent | None = None
        self._is_over = False
        if not (command.tree.is_chain or peer.can(model_pb2.MODEL_FEATURE_TREES)):
            self._chain = chain = BestChain.of(command.tree, command.distributions)
            command = replace(command, tree=chain.tree, distributions=chain.distributions)
        self._command = command
        self.num_tokens = context.num_committed + len(command.path) + len(command.tree)
        """All tokens of the call."""
        self.num_tree_tokens = len(command.tree)
        self.num_sent_tokens = 0
        """Tokens of the call that the replica was sent."""
        self.num_held_tokens = 0
        """Tokens before them, which it is believed to hold."""
        self.num_further = command.num_further
        """Further tokens that the call asks for."""
        self.collect_s = 0.0
        """The time for which the replica may collect them."""
        self.num_verdicts = 0
        """Verdicts of the call before the one that is awaited."""
        self.cost = ReplicaCost()
        """The cost of the latest verdict, without the draft of the replica's heads."""
        self._first_span_id = ""

    @property
    def is_further(self) -> bool:
        """True if it awaits a further token, for which no request was sent."""
        return self.num_verdicts > 0

    def send(self, *, hedge: bool) -> None:
        """Send the verification. The judge is told nothing before this returns."""
        self._call = call = self._begun(hedge=hedge)
        if self._request.recorded:
            self._first_span_id = format_span_id(call.span.get_span_context().span_id)
        self._asked = self._verification()
        if may_collect(self._request, self._command, self.peer):
            shared_s = self._request.mesh.latencies.collect_s
            self.collect_s = max(self._request.chunk_interval_s, shared_s)
        request = write_verification(
            *(self._request, self._command, self._context.num_committed),
            *(self.peer, self._asked, self.collect_s),
        )
        self.num_sent_tokens = len(request.prefix.token_ids) + self.num_tree_tokens
        self.num_held_tokens = request.prefix.base_length
        message = verifier_pb2.VerifyEachRequest(request=request, trace_context=call.carrier)
        try:
            self._sent = self.peer.verifications.begin(message, self)
        except grpc.aio.AioRpcError as error:  # the replica has just left
            asyncio.get_running_loop().call_soon(self.ended, error)

    def _begun(self, *, hedge: bool) -> ClientSpan:
        """Return the span of the verification that begins now."""

        def describe() -> Mapping[str, AttributeValue]:
            return {
                names.DRAFT_TOKENS: len(self._command.tree),
                names.HEDGE: hedge,
                **self._further(),
                **self._context.cause.attributes(),
                **self.peer.attributes,
            }

        call = ClientSpan(
            *(METHOD, self.peer.address, describe, self._context.parent),
            recorded=self._request.recorded,
            measured=not self.is_further,  # those are part of the call that was sent
        )
        call.span.update_name(names.VERIFY_SPAN)
        return call

    def _further(self) -> Mapping[str, AttributeValue]:
        """Return which further verification of which one that was sent this is."""
        if not self.is_further:
            return {}
        return {names.FURTHER: self.num_verdicts, names.FURTHER_OF: self._first_span_id}

    def arrived(self, message: verifier_pb2.VerifyEachResponse) -> None:
        """Handle the response; see ``Receiver``."""
        self._request.context.run(self._handle, message.response)

    def ended(self, end: BaseException) -> None:
        """Handle an error in place of the response; see ``Receiver``."""
        if not self._is_over:
            self._request.context.run(self._fail, end)

    def give_up(self) -> None:
        """End the attempt without an answer: it is too late."""
        self.ended(late())

    def cancel(self) -> None:
        """End the attempt, whose answer is not wanted."""
        self._close(asyncio.CancelledError())

    def _handle(self, response: verifier_pb2.VerifyResponse) -> None:
        try:
            verified = self._read(response)
        except grpc.aio.AioRpcError as error:
            self._fail(error)
            return
        except Exception as error:
            self._close(error)
            self._judge.broke(error)
            return
        if verified.more:
            self._end_span()
        else:
            self._close()
        self._judge.answered(self, verified, response)

    def go_on(self, command: Verify, context: CommandContext) -> None:
        """Await the next of several responses: that to ``command``, as if it was sent now."""
        self.began = asyncio.get_running_loop().time()
        self._command, self._context = command, context
        self._asked = self._verification()
        self.num_tokens, self.num_tree_tokens = context.num_committed, 0
        self.num_held_tokens, self.num_sent_tokens = context.num_committed - 1, 1
        self.num_verdicts += 1
        if self._request.recorded:
            self._call = self._begun(hedge=False)

    def _fail(self, error: BaseException) -> None:
        self._close(error)
        if isinstance(error, grpc.aio.AioRpcError):
            self._judge.failed(self, error)
        else:
            assert isinstance(error, Exception)
            self._judge.broke(error)

    def _close(self, error: BaseException | None = None) -> None:
        """End the call, whose outcome is known."""
        if self._is_over:
            return
        self._is_over = True
        sent, self._sent = self._sent, None  # it refers to this attempt
        if sent is not None:
            sent.close(error)
        self._end_span(error)
        self.reservation.release()

    def _end_span(self, error: BaseException | None = None) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.end(error)

    def _verification(self) -> VerificationRequest:
        """Return what the answer is checked against."""
        num_committed = self._context.num_committed
        return verification_request(self._request, self._command, num_committed, self.peer)

    def _read(self, response: verifier_pb2.VerifyResponse) -> Verified:
        """Return what the answer means for the strategy. Raises ``AioRpcError`` for an invalid one:
        it counts as the replica's failure and is retried."""
        try:
            most = self._command.num_further if self.collect_s else 0
            collected = read_collected(response, most, self._request.vocab_size)
            if response.has_more and self._command.num_further <= len(collected):
                raise InvalidField("has_more", "promises what was not asked for")
            if response.number not in (0, self.num_verdicts + 1):
                raise InvalidField("number", f"must be {self.num_verdicts + 1}")
            verdict = read_verdict(response, self._asked)
            self.cost = read_cost(response.cost, self.num_held_tokens + self.num_sent_tokens)
        except InvalidField as error:
            log.warning("bad verdict", extra={**self.peer.log_fields, "reason": str(error)})
            raise call_error(grpc.StatusCode.INTERNAL, f"bad verdict: {error}") from error
        drafted = self._draft(response)
        verified = Verified(
            *(self._command.task, verdict, drafted), more=response.has_more, collected=collected
        )
        if self._request.recorded and self._call is not None:
            self._describe(self._call.span, response, verified)
        if self._chain is None:
            return verified
        return replace(verified, verdict=self._chain.in_tree(verdict), tried=self._chain.nodes)

    def _draft(self, response: verifier_pb2.VerifyResponse) -> Drafted | None:
        """Return the draft of the replica's heads. A draft that is invalid or was not asked for is
        dropped, because the verdict is good without it."""
        shared, drafted = self._request, None
        try:
            drafted = read_next_draft(response, self._command, shared.sampling, shared.vocab_size)
        except InvalidField as error:
            log.warning("bad draft", extra={**self.peer.log_fields, "reason": str(error)})
        if drafted is None:
            response.ClearField("next_draft")
        return drafted

    def _describe(
        self, span: Span, response: verifier_pb2.VerifyResponse, verified: Verified
    ) -> None:
        """Record on ``span`` what was judged and drafted."""
        span.set_attribute(names.ACCEPTED, len(response.accepted_nodes))
        if verified.next_draft is not None:
            span.set_attribute(names.HEADS_TOKENS, len(verified.next_draft.token_ids))
            span.set_attribute(names.HEADS_MS, response.next_draft.cost.forward_ms)
        tokens, command = self._request.tokens, self._command
        if tokens is not None:
            judged = command.path, command.tree, verified.verdict
            span.set_attributes(tokens.judged(self._context.num_committed, *judged))
