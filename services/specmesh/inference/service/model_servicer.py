"""ModelService: what this process serves, so that peers can check it before they send requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import grpc.aio

from specmesh.inference.model import LanguageModel
from specmesh.serving.tokenizers import fingerprint
from specmesh.v1 import model_pb2, model_pb2_grpc

PIECE_BYTES = 1 << 20


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """Answers with the description and the tokenizer of a model, which never change."""

    def __init__(self, model: LanguageModel) -> None:
        description = model.description
        self._process_id = uuid4().hex
        self._tokenizer = description.tokenizer_json.encode()
        self._info = model_pb2.ModelInfo(
            name=description.name,
            vocab_size=description.vocab_size,
            context_tokens=description.context_tokens,
            end_of_text_ids=description.end_of_text_ids,
            tokenizer_fingerprint=fingerprint(description.tokenizer_json),
            num_parameters=description.num_parameters,
            backend=description.backend,
            weights_digest=description.weights_digest,
            dtype=description.dtype,
            revision=description.revision,
            kv_capacity_tokens=model.pool.capacity_tokens if model.pool is not None else 0,
        )

    async def GetModel(  # noqa: N802
        self,
        request: model_pb2.GetModelRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[model_pb2.GetModelRequest, model_pb2.GetModelResponse],  # noqa: ARG002
    ) -> model_pb2.GetModelResponse:
        """The model's description, and a random id of this process."""
        return model_pb2.GetModelResponse(model=self._info, process_id=self._process_id)

    async def GetTokenizer(  # noqa: N802
        self,
        request: model_pb2.GetTokenizerRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[  # noqa: ARG002
            model_pb2.GetTokenizerRequest, model_pb2.GetTokenizerResponse
        ],
    ) -> AsyncIterator[model_pb2.GetTokenizerResponse]:
        """The tokenizer's JSON, in pieces of ``PIECE_BYTES``."""
        for start in range(0, len(self._tokenizer), PIECE_BYTES):
            piece = self._tokenizer[start : start + PIECE_BYTES]
            yield model_pb2.GetTokenizerResponse(data=piece)
