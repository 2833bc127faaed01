"""ModelService over gRPC: peers learn what a replica serves."""

from __future__ import annotations

import pytest

from specmesh.inference.models.simulated.empty import EmptyModel
from specmesh.inference.service import model_servicer
from specmesh.inference.service.features import PROTOCOL_REVISION
from specmesh.mesh.v1alpha1 import model_service_pb2, model_service_pb2_grpc
from specmesh.serving.templates.tokenizers import fingerprint
from specmesh.v1 import model_pb2

ALL_FEATURES = [number for number in model_pb2.ModelFeature.values() if number]


async def ask(channel) -> tuple[model_pb2.ModelInfo, list[bytes]]:
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    info = (await stub.GetModel(model_service_pb2.GetModelRequest(), timeout=20)).model
    pieces = stub.GetTokenizer(model_service_pb2.GetTokenizerRequest(), timeout=20)
    return info, [piece.data async for piece in pieces]


async def test_description_travels_whole(load, serve):
    model = load("qwen2", cache_tokens=256)
    async with serve(model) as channel:
        info, _ = await ask(channel)
    info.features.sort()
    assert info == model_pb2.ModelInfo(
        name="qwen2",
        vocab_size=60,
        context_tokens=128,
        end_of_text_ids=[0],
        tokenizer_fingerprint=fingerprint(model.description.tokenizer_json),
        num_parameters=model.description.num_parameters,
        backend="transformers",
        weights_digest=model.description.weights_digest,
        dtype="float32",
        kv_capacity_tokens=256,
        max_batch_calls=model.max_batch,
        protocol_revision=PROTOCOL_REVISION,
        features=[each for each in ALL_FEATURES if each != model_pb2.MODEL_FEATURE_HEADS],
    )
    assert len(bytes.fromhex(info.weights_digest)) == 32


@pytest.mark.parametrize("piece_bytes", [1 << 20, 100])
async def test_tokenizer_arrives_in_pieces_that_join(load, serve, piece_bytes, monkeypatch):
    monkeypatch.setattr(model_servicer, "PIECE_BYTES", piece_bytes)
    model = load()
    async with serve(model) as channel:
        info, pieces = await ask(channel)
    tokenizer_json = b"".join(pieces).decode()
    assert tokenizer_json == model.description.tokenizer_json
    assert info.tokenizer_fingerprint == fingerprint(tokenizer_json)
    assert len(pieces) == -(-len(tokenizer_json.encode()) // piece_bytes)


async def test_model_without_a_tokenizer_sends_none(serve):
    async with serve(EmptyModel()) as channel:
        info, pieces = await ask(channel)
    assert info.tokenizer_fingerprint == ""
    assert (info.dtype, info.kv_capacity_tokens) == ("", 0)
    assert info.weights_digest
    assert model_pb2.MODEL_FEATURE_INTERRUPTION not in info.features
    assert pieces == []
