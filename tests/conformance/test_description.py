"""What peers are told before they send requests."""

from __future__ import annotations

import re

from specmesh.mesh.v1alpha1 import model_service_pb2, model_service_pb2_grpc
from specmesh.serving.templates.tokenizers import fingerprint


def check(engine):
    info, model = engine.info, engine.reference.description
    assert info.context_tokens == model.context_tokens
    assert tuple(info.end_of_text_ids) == model.end_of_text_ids
    assert re.fullmatch("[0-9a-f]{64}", info.weights_digest)
    assert info.name
    assert info.backend


async def test_a_verifier_tells_its_model(verifier, channel):
    check(verifier)
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    first, second = [
        await stub.GetModel(model_service_pb2.GetModelRequest(), timeout=20) for _ in range(2)
    ]
    assert first == second
    assert first.process_id


async def test_a_drafter_tells_its_model(drafter):
    check(drafter)


async def test_the_tokenizer_is_the_one_that_its_fingerprint_names(verifier, channel):
    """Else texts would be read as other tokens than those that the model knows."""
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    call = stub.GetTokenizer(model_service_pb2.GetTokenizerRequest(), timeout=20)
    pieces = [piece.data async for piece in call]
    expected = fingerprint(verifier.reference.description.tokenizer_json)
    assert fingerprint(b"".join(pieces).decode()) == verifier.info.tokenizer_fingerprint == expected
