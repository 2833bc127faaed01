"""The replicas that one verification may be sent to."""

from __future__ import annotations

import asyncio
from functools import partial

from opentelemetry.context import Context

from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.pool.examination import is_healthy
from specmesh.orchestrator.replicas.retries.attempts import Attempts
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.orchestrator.strategies.commands import Verify
from specmesh.v1 import model_pb2


def attempts_at(request: RequestContext, command: Verify, context: CommandContext) -> Attempts:
    """Return the attempts of ``command``, at replicas that can hold its tokens."""
    num_tokens = context.num_committed + len(command.path) + len(command.tree)
    return Attempts(
        *(request.mesh.verifiers, request.prefix, request.deadline),
        request.need.of_tokens(num_tokens),
        is_healthy=partial(_is_healthy, request, context.parent),
        wanted=_wanted(command),
    )


async def _is_healthy(request: RequestContext, parent: Context, peer: Peer) -> bool:
    patience = request.mesh.latencies.verifications
    latest_s = patience.given_up_after(1, peer.num_outstanding, 0)
    deadline = min(request.deadline, asyncio.get_running_loop().time() + latest_s)
    return await is_healthy(peer, request.vocab_size, deadline, parent)


def _wanted(command: Verify) -> model_pb2.ModelFeature.ValueType | None:
    """Return the feature that is preferred among equally busy replicas; None if any will do."""
    if command.next_draft:
        return model_pb2.MODEL_FEATURE_HEADS
    return None if command.tree.is_chain else model_pb2.MODEL_FEATURE_TREES
