"""ModelService: it describes what this process serves, so that peers can check before they send
requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from uuid import uuid4

import grpc.aio

from specmesh.inference.model import LanguageModel
from specmesh.inference.service.features import PROTOCOL_REVISION
from specmesh.mesh.v1alpha1 import model_service_pb2, model_service_pb2_grpc
from specmesh.serving.templates.chat_template import ChatTemplate
from specmesh.serving.templates.tokenizers import fingerprint
from specmesh.v1 import model_pb2
from specmesh.v1.sampling_pb2 import SamplingParameters

PIECE_BYTES = 1 << 20


class ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """Answers with the description, the tokenizer and the chat template of a model, which never
    change."""

    def __init__(
        self,
        model: LanguageModel,
        features: Sequence[model_pb2.ModelFeature.ValueType],
        instance: str = "",
        num_threads: int = 0,
        forward_times: Sequence[tuple[int, float]] = (),
    ) -> None:
        """Describe ``model``. ``features`` are those of the process's other services, ``instance``
        is the process's name, ``num_threads`` the number of threads of a forward pass, and
        ``forward_times`` are the rows and seconds of those that were timed at the start."""
        description = model.description
        self._instance = instance
        self._num_threads = num_threads
        self._forward_times = [
            model_service_pb2.ForwardTime(num_rows=num_rows, forward_ms=seconds * 1e3)
            for num_rows, seconds in forward_times
        ]
        self._process_id = uuid4().hex
        self._tokenizer = description.tokenizer_json.encode()
        self._chat_template = _message(description.chat_template)
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
            kv_capacity_tokens=(
                description.kv_capacity_tokens if model.pool is None else model.pool.capacity_tokens
            ),
            protocol_revision=PROTOCOL_REVISION,
            features=[
                each
                for each in features
                if description.scores_trees or each != model_pb2.MODEL_FEATURE_TREES
            ],
            heads_depth=description.heads_depth,
            max_batch_calls=model.max_batch,
            generation_defaults=(
                SamplingParameters(**description.generation_defaults)  # type: ignore[arg-type]
                if description.generation_defaults
                else None
            ),
        )
        if description.interruptible:
            self._info.features.append(model_pb2.MODEL_FEATURE_INTERRUPTION)
        if description.heads_depth:
            self._info.features.append(model_pb2.MODEL_FEATURE_HEADS)

    async def GetModel(  # noqa: N802
        self,
        request: model_service_pb2.GetModelRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[  # noqa: ARG002
            model_service_pb2.GetModelRequest, model_service_pb2.GetModelResponse
        ],
    ) -> model_service_pb2.GetModelResponse:
        """Return the model's description, and who this process is."""
        return model_service_pb2.GetModelResponse(
            model=self._info,
            process_id=self._process_id,
            instance=self._instance,
            num_threads=self._num_threads,
            forward_times=self._forward_times,
        )

    async def GetTokenizer(  # noqa: N802
        self,
        request: model_service_pb2.GetTokenizerRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[  # noqa: ARG002
            model_service_pb2.GetTokenizerRequest, model_service_pb2.GetTokenizerResponse
        ],
    ) -> AsyncIterator[model_service_pb2.GetTokenizerResponse]:
        """Yield the tokenizer's JSON, in pieces of ``PIECE_BYTES``, the first with the chat
        template."""
        for start in range(0, len(self._tokenizer), PIECE_BYTES):
            piece = self._tokenizer[start : start + PIECE_BYTES]
            yield model_service_pb2.GetTokenizerResponse(
                data=piece, chat_template=None if start else self._chat_template
            )


def _message(template: ChatTemplate | None) -> model_service_pb2.ChatTemplate | None:
    if template is None:
        return None
    return model_service_pb2.ChatTemplate(
        source=template.source,
        special_tokens=template.special_tokens,
        tool_source=template.tool_source,
    )
