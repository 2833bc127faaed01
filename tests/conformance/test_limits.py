"""What a request may be, and how one that may not is refused: by name, before anything is computed
from it."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from tests.conformance.calls import GREEDY, refusal, request, verify, violations, whole
from tests.conformance.cases import rows_of
from tests.conformance.wrong_fields import (
    VALID,
    VALID_DRAFT,
    Wrong,
    wrong_drafts,
    wrong_verifications,
)

from specmesh.decoding import acceptance
from specmesh.decoding.trees.tree import TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2, drafter_pb2_grpc, verifier_pb2

LONGEST_CONTEXT = 1 << 14
"""What is longer takes too long to fill."""
UNKNOWN_FIELD = b"\xf8\x07\x01"
"""Number 127, and its value."""
STATUS = "INVALID_ARGUMENT"


async def test_the_context_can_be_filled_to_its_last_token(verifier, channel):
    limit, capacity = verifier.info.context_tokens, verifier.info.kv_capacity_tokens
    if not 0 < limit <= LONGEST_CONTEXT or 0 < capacity < limit:
        pytest.skip(f"a context of {limit} tokens, and KV of {capacity}")
    tokens = verifier.text_of(limit)
    prefix, tree = tokens[:-3], TokenTree.chain(tokens[-3:])
    rows = rows_of(verifier.reference, prefix, tree)
    expected = acceptance.verify(tree, rows, GREEDY, len(prefix))
    response = await verify(channel, request(whole(prefix), tree))
    assert list(response.accepted_nodes) == list(expected.accepted_nodes)
    assert response.next_token_id == expected.next_token


async def named(call) -> tuple[str, list[str]]:
    """The status of a call, and the fields that it names."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name, violations(error)
    return "OK", []


def expected_of(wrong: Wrong) -> dict[str, tuple[str, list[str]]]:
    return {name: (STATUS, [field]) for name, (_, field) in wrong.items()} | {"valid": ("OK", [])}


async def test_a_wrong_verification_is_refused_by_field(verifier, channel):
    wrong = wrong_verifications(verifier)
    asked = {name: VALID | fields for name, (fields, _) in wrong.items()} | {"valid": VALID}
    told = await asyncio.gather(
        *(named(verify(channel, verifier_pb2.VerifyRequest(**fields))) for fields in asked.values())
    )
    assert dict(zip(asked, told, strict=True)) == expected_of(wrong)


async def test_a_wrong_draft_is_refused_by_field(drafter, draft_channel):
    wrong = wrong_drafts(drafter)
    asked = {name: VALID_DRAFT | fields for name, (fields, _) in wrong.items()}
    asked["valid"] = VALID_DRAFT
    stub = drafter_pb2_grpc.DrafterServiceStub(draft_channel)

    async def draft(fields):
        async for _ in stub.Draft(drafter_pb2.DraftRequest(**fields), timeout=60):
            pass

    told = await asyncio.gather(*(named(draft(fields)) for fields in asked.values()))
    assert dict(zip(asked, told, strict=True)) == expected_of(wrong)


async def test_a_field_that_it_does_not_know_is_refused(verifier, channel):
    """Whoever sets one wants another answer."""
    call = channel.unary_unary("/specmesh.mesh.v1alpha1.VerifierService/Verify")
    message = request(whole([1, 2, 3])).SerializeToString() + UNKNOWN_FIELD
    status, reason, told = await refusal(call(message, timeout=60))
    assert (status.name, reason, told["field"]) == (STATUS, "UNKNOWN_FIELD", "127")
