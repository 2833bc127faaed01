"""The message that asks a replica for a verification, and what is read from its responses."""

from __future__ import annotations

from specmesh.decoding.bonus import MAX_BONUS_CANDIDATES
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import AcceptanceMode
from specmesh.mesh.v1alpha1 import verifier_pb2
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.calls.verify.next_drafts import write_next_draft
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.orchestrator.strategies.commands import Verify
from specmesh.serving.codec.verdicts import VerificationRequest
from specmesh.serving.codec.wire import write_tree
from specmesh.v1 import model_pb2


def may_collect(request: RequestContext, command: Verify, peer: Peer) -> bool:
    """Return whether several further tokens may come in one response. Where spans are recorded each
    has its own."""
    if not (command.num_further and command.may_wait):
        return False
    if request.recorded or request.stops_early or request.logprobs is not None:
        return False
    return peer.can(model_pb2.MODEL_FEATURE_COLLECTED_TOKENS)


def verification_request(
    request: RequestContext, command: Verify, num_committed: int, peer: Peer
) -> VerificationRequest:
    """Return what the answer to ``command`` is checked against."""
    wants_bonus = (
        request.sampling.mode is AcceptanceMode.REJECTION
        and command.drafting_on
        and peer.can(model_pb2.MODEL_FEATURE_BONUS_DISTRIBUTION)
        # A verdict only has the log-probabilities of its own bonus token.
        and request.num_top_logprobs is None
    )
    return VerificationRequest(
        command.tree,
        num_committed + len(command.path),
        request.sampling,
        request.vocab_size,
        MAX_BONUS_CANDIDATES if wants_bonus else 0,
        request.num_top_logprobs,
        request.num_node_logprobs,
    )


def write_verification(
    request: RequestContext,
    command: Verify,
    num_committed: int,
    peer: Peer,
    asked: VerificationRequest,
    collect_s: float,
) -> verifier_pb2.VerifyRequest:
    """Return the message that has ``peer`` carry out ``command``."""
    heads, further = model_pb2.MODEL_FEATURE_HEADS, model_pb2.MODEL_FEATURE_FURTHER_TOKENS
    next_draft = None
    if peer.can(heads):
        next_draft = write_next_draft(command, request.sampling, request.epoch)
    return verifier_pb2.VerifyRequest(
        prefix=request.prefix.message(peer.identity, num_committed, command.path),
        tree=write_tree(command.tree, command.distributions),
        sampling=request.sampling_message,
        num_bonus_candidates=asked.num_bonus_candidates,
        num_top_logprobs=asked.num_top_logprobs,
        num_node_logprobs=asked.num_node_logprobs,
        next_draft=next_draft,
        num_further_tokens=command.num_further if peer.can(further) else 0,
        collect_ms=round(collect_s * 1e3),
    )


def read_collected(
    response: verifier_pb2.VerifyResponse, most: int, vocab_size: int
) -> tuple[int, ...]:
    """Return the tokens, ``most`` at most, that were collected behind the next one. Raises
    ``InvalidField``."""
    collected = tuple(response.collected_token_ids)
    if len(collected) > most:
        raise InvalidField("collected_token_ids", f"has more than {most} tokens")
    if collected and (token := max(collected)) >= vocab_size:
        raise InvalidField("collected_token_ids", f"{token} is outside the vocabulary")
    return collected
