"""A server that computes nothing: every request gets the same short answer, built once.

``python -m specmesh.bench.load.stub`` logs its address, as the services do, and ends with its
parent. The capacity of a load generator is measured against it, so it must cost less than the
generator.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import grpc.aio

from specmesh.v1 import events_pb2, model_pb2, served_model_pb2, tokenizer_pb2
from specmesh.v1 import generation_pb2 as pb

_NUM_PROMPT_TOKENS = 4
_MODEL = "stub"


def answer(num_tokens: int) -> tuple[bytes, ...]:
    """Return the messages of an answer of ``num_tokens``, each token in its own chunk."""
    started = events_pb2.GenerationStarted(
        session_id="stub",
        resume_token=b"stub",
        epoch=1,
        model=_MODEL,
        strategy="autoregressive",
        seed=1,
        num_prompt_tokens=_NUM_PROMPT_TOKENS,
        resumable=False,
    )
    events = [events_pb2.GenerationEvent(started=started)]
    events += [events_pb2.GenerationEvent(chunk=_chunk(number)) for number in range(num_tokens)]
    stats = events_pb2.GenerationStats(
        num_prompt_tokens=_NUM_PROMPT_TOKENS,
        num_output_tokens=num_tokens,
        num_verify_calls=num_tokens,
        num_target_tokens=num_tokens,
    )
    finished = events_pb2.GenerationFinished(
        finish_reason=events_pb2.FINISH_REASON_LENGTH, stats=stats
    )
    events.append(events_pb2.GenerationEvent(finished=finished))
    return tuple(pb.GenerateResponse(event=event).SerializeToString() for event in events)


def _chunk(number: int) -> events_pb2.GenerationChunk:
    return events_pb2.GenerationChunk(
        first_index=number,
        token_ids=[number],
        text="a",
        text_lengths=[1],
        kinds=[events_pb2.TOKEN_KIND_BONUS],
    )


class _Stub:
    """A servicer whose messages pass as bytes, so that none is parsed."""

    def __init__(self, num_tokens: int) -> None:
        self._answer = answer(num_tokens)

    async def generate(
        self,
        request: bytes,  # noqa: ARG002
        context: grpc.aio.ServicerContext[bytes, bytes],  # noqa: ARG002
    ) -> AsyncIterator[bytes]:
        """Yield the answer."""
        for message in self._answer:
            yield message

    async def tokenize(
        self,
        request: bytes,
        context: grpc.aio.ServicerContext[bytes, bytes],  # noqa: ARG002
    ) -> bytes:
        """Return a token for each word."""
        words = tokenizer_pb2.TokenizeRequest.FromString(request).text.split()
        return tokenizer_pb2.TokenizeResponse(token_ids=range(len(words))).SerializeToString()

    async def list_models(
        self,
        request: bytes,  # noqa: ARG002
        context: grpc.aio.ServicerContext[bytes, bytes],  # noqa: ARG002
    ) -> bytes:
        """Return the only model."""
        model = served_model_pb2.ServedModel(target=model_pb2.ModelInfo(name=_MODEL))
        return served_model_pb2.ListModelsResponse(models=[model]).SerializeToString()


async def serve(num_tokens: int) -> None:
    """Answer on a free port of the loopback interface until cancelled."""
    stub = _Stub(num_tokens)
    server = grpc.aio.server()
    methods: dict[str, dict[str, grpc.RpcMethodHandler[bytes, bytes]]] = {
        "GenerationService": {
            "Generate": grpc.unary_stream_rpc_method_handler(stub.generate),
            "ListModels": grpc.unary_unary_rpc_method_handler(stub.list_models),
        },
        "TokenizerService": {"Tokenize": grpc.unary_unary_rpc_method_handler(stub.tokenize)},
    }
    for name, handlers in methods.items():
        generic = grpc.method_handlers_generic_handler(f"specmesh.v1.{name}", handlers)
        server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(json.dumps({"event": "serving", "address": f"127.0.0.1:{port}"}) + "\n")
    sys.stdout.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
