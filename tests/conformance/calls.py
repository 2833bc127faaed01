"""Calls of VerifierService, as an orchestrator makes them, and what came back, checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from tests.conformance.cases import Case

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.sampling import Distribution, Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.mesh.v1alpha1 import tokens_pb2, verifier_pb2, verifier_pb2_grpc
from specmesh.serving.codec.verdicts import VerificationRequest, read_verdict
from specmesh.serving.codec.wire import write_sampling, write_tree
from specmesh.serving.errors import error_info

TIMEOUT_S = 120.0
GREEDY = Sampling(temperature=0)


def whole(tokens: Sequence[int], salt: bytes = b"") -> tokens_pb2.Prefix:
    """A prefix of which every token is sent."""
    return tokens_pb2.Prefix(token_ids=tokens, salt=salt)


def by_base(tokens: Sequence[int], salt: bytes = b"") -> tokens_pb2.Prefix:
    """A prefix whose whole blocks before its last token, which nobody has computed yet, are named
    by their digest."""
    length, digest = PrefixChain(tokens[:-1], salt).base()
    return tokens_pb2.Prefix(
        base_length=length, base_digest=digest, token_ids=tokens[length:], salt=salt
    )


def request(
    prefix: tokens_pb2.Prefix,
    tree: TokenTree = EMPTY,
    sampling: Sampling = GREEDY,
    distributions: Mapping[int, Distribution] | None = None,
    **fields: Any,
) -> verifier_pb2.VerifyRequest:
    """The message; ``fields`` are more of its own."""
    return verifier_pb2.VerifyRequest(
        prefix=prefix,
        tree=write_tree(tree, distributions),
        sampling=write_sampling(sampling),
        **fields,
    )


def request_of(case: Case, **fields: Any) -> verifier_pb2.VerifyRequest:
    """What ``case`` asks."""
    prefix = whole(case.prefix, case.salt)
    return request(prefix, case.tree, case.sampling, case.distributions, **fields)


def verify(
    channel: grpc.aio.Channel, message: verifier_pb2.VerifyRequest, timeout_s: float = TIMEOUT_S
) -> grpc.aio.UnaryUnaryCall[verifier_pb2.VerifyRequest, verifier_pb2.VerifyResponse]:
    """The call, begun as soon as the loop runs."""
    return verifier_pb2_grpc.VerifierServiceStub(channel).Verify(message, timeout=timeout_s)


async def answers(
    channel: grpc.aio.Channel, message: verifier_pb2.VerifyRequest
) -> AsyncIterator[verifier_pb2.VerifyResponse]:
    """Yield the verdict on ``message``, and the further tokens that it asks for."""
    call = verifier_pb2_grpc.VerifierServiceStub(channel).VerifyEach(timeout=TIMEOUT_S)
    await call.write(verifier_pb2.VerifyEachRequest(request=message))
    more = True
    while more:
        response = (await call.read()).response
        more = response.has_more
        yield response
    call.cancel()


async def verdict_on(
    channel: grpc.aio.Channel, case: Case, vocab_size: int, **fields: Any
) -> Verdict:
    """The verdict on ``case``, which has the form that an orchestrator insists on."""
    response = await verify(channel, request_of(case, **fields))
    return read(response, case, vocab_size, **fields)


def read(
    response: verifier_pb2.VerifyResponse, case: Case, vocab_size: int, **fields: Any
) -> Verdict:
    """The verdict of a response; raises ``InvalidField`` where no logits could have led to it."""
    asked = VerificationRequest(case.tree, len(case.prefix), case.sampling, vocab_size, **fields)
    return read_verdict(response, asked)


Refusal = tuple[grpc.StatusCode, str, dict[str, str]]
"""Status, reason and the reason's metadata."""


async def refusal(call: Awaitable[object]) -> Refusal:
    """Why a call was refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    info = error_info(refused.value)
    assert info is not None, refused.value
    return refused.value.code(), info.reason, dict(info.metadata)


def violations(error: grpc.aio.AioRpcError) -> list[str]:
    """The fields that it names as wrong."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    bad = BadRequest()
    assert isinstance(details, bytes)
    if not any(packed.Unpack(bad) for packed in Status.FromString(details).details):
        return []
    return [violation.field for violation in bad.field_violations]
