"""Both services that clients call, on a socket over a mesh of fake peers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import grpc.aio
from tests.orchestrator.conftest import Orchestrated

from specmesh.mesh.v1alpha1.model_service_pb2 import ChatTemplate
from specmesh.orchestrator.requests.plan import Defaults
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.orchestrator.servicer import GenerationServicer
from specmesh.orchestrator.tokenizer_servicer import TokenizerServicer
from specmesh.serving.rpc.interceptors import CallInterceptor
from specmesh.serving.store.session_store import SessionStore
from specmesh.v1 import generation_pb2_grpc, tokenizer_pb2_grpc

CHATML = (
    "{% for message in messages %}"
    "<{{ message.role }}>{{ message.content }}<end>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def template(source: str, **special_tokens: str) -> ChatTemplate:
    return ChatTemplate(source=source, special_tokens=special_tokens)


class Face(NamedTuple):
    address: str
    generation: generation_pb2_grpc.GenerationServiceStub
    tokenizer: tokenizer_pb2_grpc.TokenizerServiceStub


@asynccontextmanager
async def face(behind: Orchestrated, store: SessionStore | None = None) -> AsyncIterator[Face]:
    prompts = PromptReader()
    generation = GenerationServicer(
        *(behind.mesh, behind.targets, store, Defaults("autoregressive"), prompts)
    )
    server = grpc.aio.server(interceptors=[CallInterceptor()])
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(generation, server)
    tokenizer_pb2_grpc.add_TokenizerServiceServicer_to_server(
        TokenizerServicer(behind.targets, prompts), server
    )
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield Face(
                address,
                generation_pb2_grpc.GenerationServiceStub(channel),
                tokenizer_pb2_grpc.TokenizerServiceStub(channel),
            )
    finally:
        await server.stop(None)
        await prompts.close()
