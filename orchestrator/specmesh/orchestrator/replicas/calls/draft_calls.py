"""The calls of one request to drafters.

A draft is only a guess: a call that fails before its first tokens is retried on another drafter,
but never waits for a drafter to recover.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import grpc.aio
from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from specmesh.decoding.trees.tree import TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.incoming_draft import Deliver, IncomingDraft
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.latencies.mesh_latencies import DRAFT_SECONDS
from specmesh.orchestrator.replicas.need import Need
from specmesh.orchestrator.replicas.retries.attempts import Attempts, Quarantined
from specmesh.orchestrator.replicas.transport.exchange import exchange
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.orchestrator.strategies.commands import Draft, TaskId
from specmesh.orchestrator.strategies.events import Drafted
from specmesh.orchestrator.strategies.kit.draft_noise import draft_sampling
from specmesh.serving import conventions as names
from specmesh.serving.codec.wire import (
    write_growth,
    write_sampling,
    write_stop,
    write_tree,
    write_tree_shape,
)
from specmesh.serving.telemetry.pipeline import ClientSpan
from specmesh.v1 import model_pb2, sampling_pb2

METHOD = "specmesh.mesh.v1alpha1.DrafterService/Draft"


class DraftCalls:
    """Requests drafts."""

    def __init__(self, request: RequestContext) -> None:
        self._request = request
        self._pool = request.mesh.drafters
        self._quarantined: Quarantined | None = None
        """Set once a draft has broken several drafters, because the next one would too."""

    async def draft(self, command: Draft, context: CommandContext, deliver: Deliver) -> None:
        """Pass levels of the draft to ``deliver`` as they arrive.

        A call that fails after its first tokens is not retried: those tokens still count.
        Raises ``AioRpcError`` or ``ServiceError``.
        """
        if self._quarantined is not None:
            raise self._quarantined
        deadline = min(self._request.deadline, _now() + DRAFT_SECONDS)
        kinds = self._pool.kinds
        kind = kinds[command.drafter] if command.drafter < len(kinds) else None
        attempts = Attempts(
            *(self._pool, self._request.prefix, deadline, Need(kind)), patient=False
        )
        try:
            with closing(attempts):
                while not await self._try(command, context, attempts, deadline, deliver):
                    await attempts.pause()
        except Quarantined as quarantined:
            self._quarantined = quarantined
            raise

    async def _try(
        self,
        command: Draft,
        context: CommandContext,
        attempts: Attempts,
        deadline: float,
        deliver: Deliver,
    ) -> bool:
        """Make one attempt; return False if it failed before its first tokens."""
        started, began = False, _now()
        reservation = attempts.reserve()
        with context.cancellation.calling(reservation.cancel), reservation as peer:

            def received(drafted: Drafted) -> None:
                nonlocal started
                if not started:
                    attempts.answered(peer, began)
                    self._request.prefix.seen_by(peer.identity, context.num_committed)
                started = True
                deliver(drafted)

            try:
                await self._call(peer, command, context, deadline, received)
            except grpc.aio.AioRpcError as error:
                attempts.failed(peer, began, error)
                if started:
                    raise
                return False
        return True

    async def _call(
        self, peer: Peer, command: Draft, context: CommandContext, deadline: float, deliver: Deliver
    ) -> None:

        def describe() -> Mapping[str, AttributeValue]:
            return {
                names.DRAFT_DEPTH: command.depth,
                **context.cause.attributes(),
                **peer.attributes,
            }

        with ClientSpan(
            *(METHOD, peer.address, describe, context.parent), recorded=self._request.recorded
        ) as call:
            call.span.update_name(names.DRAFT_SPAN)
            asked = self._asked(peer, command, context)
            message = drafter_pb2.DraftEachRequest(request=asked, trace_context=call.carrier)
            with exchange(peer.drafts, message, deadline) as sent:
                draft = IncomingDraft(self._request, peer, command, asked, deliver)
                try:
                    with context.cancellation.calling(sent.cancel):
                        await sent.each(draft.take, draft.next_by)
                finally:
                    self._describe(call.span, command, context, draft.tree)

    def _describe(
        self, span: Span, command: Draft, context: CommandContext, tree: TokenTree
    ) -> None:
        """Record on ``span`` what was drafted, even if the draft was cancelled."""
        tokens = self._request.tokens
        if tokens is not None:
            span.set_attributes(
                tokens.drafted(context.num_committed, command.path, tree, len(command.tree))
            )

    def _asked(
        self, peer: Peer, command: Draft, context: CommandContext
    ) -> drafter_pb2.DraftRequest:
        return drafter_pb2.DraftRequest(
            prefix=self._request.prefix.message(peer.identity, context.num_committed, command.path),
            tree=write_tree(command.tree),
            from_nodes=command.from_nodes,
            depth=command.depth,
            levels_per_message=command.levels_per_message,
            num_choices=command.num_choices,
            stop=write_stop(command.stop),
            sampling=self._draft_sampling(command.task, peer),
            vocab_size=self._request.vocab_size,
            growth=write_growth(command.growth)
            if peer.can(model_pb2.MODEL_FEATURE_TREE_GROWTH)
            else None,
            shape=write_tree_shape(command.shape)
            if peer.can(model_pb2.MODEL_FEATURE_TREE_SHAPE)
            else None,
        )

    def _draft_sampling(self, task: TaskId, peer: Peer) -> sampling_pb2.SamplingParameters:
        """Return the parameters of a draft. A drafter that can't process logits or follow a grammar
        drafts without that: the target accepts fewer of its tokens."""
        shared = self._request
        own = draft_sampling(shared.sampling, task, shared.epoch)
        if own.needs_processing and not peer.can(model_pb2.MODEL_FEATURE_LOGIT_PROCESSING):
            own = own.without_processing
        if own.grammar is not None and not peer.can(model_pb2.MODEL_FEATURE_GRAMMARS):
            own = replace(own, grammar=None)
        return shared.sampling_message if own is shared.sampling else write_sampling(own)


def _now() -> float:
    return asyncio.get_running_loop().time()
