"""One attempt of a draft at one drafter: the message that is sent, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Protocol

import grpc.aio
from opentelemetry.util.types import AttributeValue

from specmesh.mesh.v1alpha1 import drafter_pb2
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.draft.incoming_draft import IncomingDraft
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.pool.reservation import Reservation
from specmesh.orchestrator.replicas.transport.exchange import Sent
from specmesh.orchestrator.replicas.transport.inbox import late
from specmesh.orchestrator.strategies.commands import Draft
from specmesh.orchestrator.strategies.events import Drafted
from specmesh.orchestrator.strategies.kit.draft_noise import draft_sampling
from specmesh.serving import conventions as names
from specmesh.serving.codec.draft_rules import write_growth, write_stop, write_tree_shape
from specmesh.serving.codec.wire import write_sampling, write_tree
from specmesh.serving.telemetry.pipeline import ClientSpan
from specmesh.v1 import model_pb2, sampling_pb2

METHOD = "specmesh.mesh.v1alpha1.DrafterService/Draft"


class Draftsman(Protocol):
    """Receives the reports of an attempt. Nothing that it does may raise."""

    def drafted(self, attempt: DraftAttempt, drafted: Drafted) -> None:
        """Levels of the draft have come."""

    def waits(self, attempt: DraftAttempt) -> None:
        """The attempt waits for the next message, from now on until its new ``due``."""

    def ended(self, attempt: DraftAttempt, error: Exception | None) -> None:
        """The attempt is over; with an error if it has failed, also by an invalid message or by
        none in time."""


class DraftAttempt:
    """An attempt to have a drafter carry out ``command``, for a ``draftsman``.

    It holds its ``reservation`` until it is over.
    """

    def __init__(
        self,
        request: RequestContext,
        reservation: Reservation,
        command: Draft,
        context: CommandContext,
        draftsman: Draftsman,
    ) -> None:
        self.reservation = reservation
        self.peer = reservation.peer
        self.began = asyncio.get_running_loop().time()
        self.has_started = False
        """True once it has brought tokens."""
        self.due = inf
        """The time, by the event loop's clock, at which to give up the next message."""
        self._request = request
        self._command = command
        self._context = context
        self._draftsman = draftsman
        self._call: ClientSpan | None = None
        self._draft: IncomingDraft | None = None
        self._sent: Sent | None = None
        self._is_over = False

    def send(self) -> None:
        """Ask for the draft. The draftsman is told nothing before this returns."""

        def describe() -> Mapping[str, AttributeValue]:
            return {
                names.DRAFT_DEPTH: self._command.depth,
                **self._context.cause.attributes(),
                **self.peer.attributes,
            }

        self._call = call = ClientSpan(
            *(METHOD, self.peer.address, describe, self._context.parent),
            recorded=self._request.recorded,
        )
        call.span.update_name(names.DRAFT_SPAN)
        asked = self._asked()
        self._draft = draft = IncomingDraft(self._request, self.peer, self._command, asked)
        self.due = draft.next_by
        message = drafter_pb2.DraftEachRequest(request=asked, trace_context=call.carrier)
        try:
            self._sent = self.peer.drafts.begin(message, self)
        except grpc.aio.AioRpcError as error:  # the drafter has just left
            asyncio.get_running_loop().call_soon(self.ended, error)

    def arrived(self, message: drafter_pb2.DraftEachResponse) -> None:
        """Handle a message; see ``Receiver``."""
        self._request.context.run(self._take, message)

    def ended(self, end: BaseException) -> None:
        """Handle the end of the call; see ``Receiver``."""
        if not self._is_over:
            self._request.context.run(self._end, end)

    def give_up(self) -> None:
        """End the attempt: its next message is late."""
        self.ended(late())

    def stop(self) -> None:
        """Stop the drafter's work now; ``cancel`` will follow."""
        if self._sent is not None:
            self._sent.close(asyncio.CancelledError())

    def cancel(self) -> None:
        """End the attempt, which is not wanted any more."""
        self._close(asyncio.CancelledError())

    def _take(self, message: drafter_pb2.DraftEachResponse) -> None:
        assert self._draft is not None
        try:
            next_by = self._draft.take(message, self._received)
        except Exception as error:
            self._end(error)
            return
        if self._is_over:
            return  # what it has brought has led to its cancellation
        if next_by is None:
            self._end(None)
        else:
            self.due = next_by
            self._draftsman.waits(self)

    def _received(self, drafted: Drafted) -> None:
        self._draftsman.drafted(self, drafted)
        self.has_started = True

    def _end(self, error: BaseException | None) -> None:
        assert error is None or isinstance(error, Exception)
        self._close(error)
        self._draftsman.ended(self, error)

    def _close(self, error: BaseException | None) -> None:
        """End the call, and record what was drafted, even if the draft was cancelled."""
        if self._is_over:
            return
        self._is_over = True
        sent, self._sent = self._sent, None  # it refers to this attempt
        if sent is not None:
            sent.close(error)
        if self._call is not None and self._draft is not None:
            self._describe(self._call, self._draft)
            self._call.end(error)
        self.reservation.release()

    def _describe(self, call: ClientSpan, draft: IncomingDraft) -> None:
        """Record what was drafted."""
        tokens, command = self._request.tokens, self._command
        if tokens is not None:
            drafted = command.path, draft.tree, len(command.tree)
            call.span.set_attributes(tokens.drafted(self._context.num_committed, *drafted))

    def _asked(self) -> drafter_pb2.DraftRequest:
        shared, peer, command = self._request, self.peer, self._command
        return drafter_pb2.DraftRequest(
            prefix=shared.prefix.message(peer.identity, self._context.num_committed, command.path),
            tree=write_tree(command.tree),
            from_nodes=command.from_nodes,
            depth=command.depth,
            levels_per_message=command.levels_per_message,
            num_choices=command.num_choices,
            stop=write_stop(command.stop),
            sampling=self._draft_sampling(),
            vocab_size=shared.vocab_size,
            growth=write_growth(command.growth)
            if peer.can(model_pb2.MODEL_FEATURE_TREE_GROWTH)
            else None,
            shape=write_tree_shape(command.shape)
            if peer.can(model_pb2.MODEL_FEATURE_TREE_SHAPE)
            else None,
        )

    def _draft_sampling(self) -> sampling_pb2.SamplingParameters:
        """Return the parameters of a draft. A drafter that can't process logits or follow a grammar
        drafts without that: the target accepts fewer of its tokens."""
        shared, peer = self._request, self.peer
        own = draft_sampling(shared.sampling, self._command.task, shared.epoch)
        if own.needs_processing and not peer.can(model_pb2.MODEL_FEATURE_LOGIT_PROCESSING):
            own = own.without_processing
        if own.grammar is not None and not peer.can(model_pb2.MODEL_FEATURE_GRAMMARS):
            own = replace(own, grammar=None)
        return shared.sampling_message if own is shared.sampling else write_sampling(own)
