"""One attempt of a verification at one replica: the message that is sent, and what comes back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import grpc
from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from specmesh.decoding.bonus import MAX_BONUS_CANDIDATES
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import AcceptanceMode
from specmesh.decoding.trees.best_chain import BestChain
from specmesh.mesh.v1alpha1 import verifier_pb2
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.next_drafts import read_next_draft, write_next_draft
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.pool.examination import METHOD
from specmesh.orchestrator.replicas.transport.exchange import exchange
from specmesh.orchestrator.replicas.transport.inbox import call_error
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.orchestrator.strategies.commands import Verify
from specmesh.orchestrator.strategies.events import Drafted, Verified
from specmesh.serving import conventions as names
from specmesh.serving.codec.verdicts import VerificationRequest, read_verdict
from specmesh.serving.codec.wire import write_tree
from specmesh.serving.telemetry.pipeline import ClientSpan
from specmesh.v1 import model_pb2

log = logging.getLogger(__name__)


class VerifyAttempt:
    """An attempt to have ``peer`` carry out ``command``, with the best chain of its tree if the
    replica verifies no trees."""

    def __init__(
        self, request: RequestContext, peer: Peer, command: Verify, context: CommandContext
    ) -> None:
        self._request = request
        self._peer = peer
        self._context = context
        self._chain: BestChain | None = None
        if not (command.tree.is_chain or peer.can(model_pb2.MODEL_FEATURE_TREES)):
            self._chain = chain = BestChain.of(command.tree, command.distributions)
            command = replace(command, tree=chain.tree, distributions=chain.distributions)
        self._command = command
        self.num_tokens = context.num_committed + len(command.path) + len(command.tree)
        """All tokens of the call."""

    async def send(
        self, deadline: float, *, hedge: bool
    ) -> tuple[Verified, verifier_pb2.VerifyRequest, verifier_pb2.VerifyResponse]:
        """Send the verification; return what it means for the strategy, and the messages.

        Raises ``AioRpcError``, also for an invalid response.
        """

        def describe() -> Mapping[str, AttributeValue]:
            return {
                names.DRAFT_TOKENS: len(self._command.tree),
                names.HEDGE: hedge,
                **self._context.cause.attributes(),
                **self._peer.attributes,
            }

        with ClientSpan(
            *(METHOD, self._peer.address, describe, self._context.parent),
            recorded=self._request.recorded,
        ) as call:
            call.span.update_name(names.VERIFY_SPAN)
            asked = self._asked()
            request = self._message(asked)
            message = verifier_pb2.VerifyEachRequest(request=request, trace_context=call.carrier)
            with exchange(self._peer.verifications, message, deadline) as sent:
                response = (await sent.read()).response
            verified = self._read(response, asked)
            self._describe(call.span, response, verified)
        if self._chain is not None:
            verdict = self._chain.in_tree(verified.verdict)
            verified = replace(verified, verdict=verdict, tried=self._chain.nodes)
        return verified, request, response

    def _asked(self) -> VerificationRequest:
        request, command = self._request, self._command
        wants_bonus = (
            request.sampling.mode is AcceptanceMode.REJECTION
            and command.drafting_on
            and self._peer.can(model_pb2.MODEL_FEATURE_BONUS_DISTRIBUTION)
            # A verdict only has the log-probabilities of its own bonus token.
            and request.num_top_logprobs is None
        )
        return VerificationRequest(
            command.tree,
            self._context.num_committed + len(command.path),
            request.sampling,
            request.vocab_size,
            MAX_BONUS_CANDIDATES if wants_bonus else 0,
            request.num_top_logprobs,
            request.num_node_logprobs,
        )

    def _message(self, asked: VerificationRequest) -> verifier_pb2.VerifyRequest:
        shared, peer, command = self._request, self._peer, self._command
        return verifier_pb2.VerifyRequest(
            prefix=shared.prefix.message(peer.identity, self._context.num_committed, command.path),
            tree=write_tree(command.tree, command.distributions),
            sampling=shared.sampling_message,
            num_bonus_candidates=asked.num_bonus_candidates,
            num_top_logprobs=asked.num_top_logprobs,
            num_node_logprobs=asked.num_node_logprobs,
            next_draft=write_next_draft(command, shared.sampling, shared.epoch)
            if peer.can(model_pb2.MODEL_FEATURE_HEADS)
            else None,
        )

    def _read(self, response: verifier_pb2.VerifyResponse, asked: VerificationRequest) -> Verified:
        """Parse the answer; an invalid one counts as the replica's failure and is retried."""
        try:
            verdict = read_verdict(response, asked)
        except InvalidField as error:
            log.warning("bad verdict", extra={**self._peer.log_fields, "reason": str(error)})
            raise call_error(grpc.StatusCode.INTERNAL, f"bad verdict: {error}") from error
        return Verified(self._command.task, verdict, self._draft(response))

    def _draft(self, response: verifier_pb2.VerifyResponse) -> Drafted | None:
        """Return the draft of the replica's heads. An invalid draft is dropped, because the verdict
        is good without it."""
        shared = self._request
        try:
            return read_next_draft(response, self._command, shared.sampling, shared.vocab_size)
        except InvalidField as error:
            log.warning("bad draft", extra={**self._peer.log_fields, "reason": str(error)})
            response.ClearField("next_draft")
            return None

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
