"""Checks whether a target replica is healthy or fails every request."""

from __future__ import annotations

import grpc.aio
from opentelemetry.context import Context

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY
from specmesh.mesh.v1alpha1 import tokens_pb2, verifier_pb2
from specmesh.orchestrator.replicas.transport.exchange import exchange
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.serving import conventions as names
from specmesh.serving.codec.verdicts import VerificationRequest, read_verdict
from specmesh.serving.codec.wire import write_sampling, write_tree
from specmesh.serving.telemetry.pipeline import ClientSpan

METHOD = "specmesh.mesh.v1alpha1.VerifierService/Verify"

_GREEDY = Sampling(temperature=0.0)
_HARMLESS = verifier_pb2.VerifyRequest(
    prefix=tokens_pb2.Prefix(token_ids=[0]),
    tree=write_tree(EMPTY),
    sampling=write_sampling(_GREEDY),
)
"""Asks for the token that follows token 0, and so contains nothing of a client's request."""


async def is_healthy(peer: Peer, vocab_size: int, deadline: float, parent: Context) -> bool:
    """Return whether ``peer`` gives a valid answer to a harmless request before ``deadline``, by
    the event loop's clock."""
    with ClientSpan(METHOD, peer.address, lambda: peer.attributes, parent) as call:
        call.span.update_name(names.EXAMINE_SPAN)
        message = verifier_pb2.VerifyEachRequest(request=_HARMLESS, trace_context=call.carrier)
        try:
            with exchange(peer.verifications, message, deadline) as sent:
                response = (await sent.read()).response
            read_verdict(response, VerificationRequest(EMPTY, 1, _GREEDY, vocab_size, 0))
        except (grpc.aio.AioRpcError, InvalidField):
            return False
        return True
