"""A peer's model as the orchestrator keeps it."""

from __future__ import annotations

from specmesh.mesh.v1alpha1 import model_service_pb2
from specmesh.mesh.v1alpha1.model_service_pb2 import GetModelResponse
from specmesh.orchestrator.replicas.transport.peer_model import fetch
from specmesh.v1.model_pb2 import ModelInfo

TOKENIZER = '{"model": {"vocab": {}}}'


class Stub:
    """A peer's ModelService, which sends its tokenizer in two pieces."""

    async def GetTokenizer(self, request, timeout):  # noqa: N802, ASYNC109
        for piece in (TOKENIZER[:9], TOKENIZER[9:]):
            yield model_service_pb2.GetTokenizerResponse(data=piece.encode())


async def test_peers_with_the_same_tokenizer_share_one_copy_of_it():
    described = [GetModelResponse(model=ModelInfo(name=name)) for name in ("a", "b")]
    one, other = [await fetch(Stub(), each) for each in described]
    assert one.tokenizer_json == TOKENIZER
    assert one.tokenizer_json is other.tokenizer_json
