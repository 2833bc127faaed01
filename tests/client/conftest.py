"""A GenerationService on a real socket whose every move the test writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from specmesh.client import AsyncClient
from specmesh.serving.rpc.intake import HeldMessage
from specmesh.serving.rpc.many import answer_many
from specmesh.serving.rpc.one_of_many import OneWithMetadata
from specmesh.v1 import events_pb2, served_model_pb2
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1.generation_pb2_grpc import (
    GenerationServiceServicer,
    add_GenerationServiceServicer_to_server,
)


def pytest_generate_tests(metafunc):
    """Run the tests of modules with ``BOTH_WAYS = True`` with a call for each answer, and with
    calls that carry many."""
    if getattr(metafunc.module, "BOTH_WAYS", False):
        metafunc.fixturenames.append("share_calls")
        metafunc.parametrize("share_calls", [False, True], ids=["own", "shared"], indirect=True)


@pytest.fixture
def share_calls(request, monkeypatch):
    """Whether clients share calls by default."""
    monkeypatch.setitem(AsyncClient.__init__.__kwdefaults__, "share_calls", request.param)


TOKENS = tuple(range(100, 112))
"""What the fake model always says; the text of token 100 is "100 ", and so on."""


def started(
    epoch: int = 1,
    *,
    resumable: bool = True,
    heartbeat_ms: int = 0,
    prompt_digest: bytes = b"",
    max_tokens: int = 0,
) -> events_pb2.GenerationEvent:
    return events_pb2.GenerationEvent(
        started=events_pb2.GenerationStarted(
            session_id="s-1",
            resume_token=b"secret",
            model_fingerprint="w-1",
            heartbeat_ms=heartbeat_ms,
            epoch=epoch,
            model="toy",
            strategy="speculative",
            seed=7,
            num_prompt_tokens=3,
            resumable=resumable,
            prompt_digest=prompt_digest,
            max_tokens=max_tokens,
        )
    )


def chunks(first: int, last: int, size: int = 2) -> Iterable[events_pb2.GenerationEvent]:
    """Tokens first to last - 1 of TOKENS."""
    for index in range(first, last, size):
        ids = TOKENS[index : min(index + size, last)]
        text = "".join(f"{token} " for token in ids)
        yield events_pb2.GenerationEvent(
            chunk=events_pb2.GenerationChunk(first_index=index, token_ids=ids, text=text)
        )


def finished(text: str = "") -> events_pb2.GenerationEvent:
    stats = events_pb2.GenerationStats(
        num_prompt_tokens=3,
        num_output_tokens=len(TOKENS),
        num_verify_calls=4,
        num_verified_tokens=10,
        num_accepted_tokens=8,
        num_wasted_tokens=2,
    )
    return events_pb2.GenerationEvent(
        finished=events_pb2.GenerationFinished(
            finish_reason=events_pb2.FINISH_REASON_LENGTH, text=text, resumable=True, stats=stats
        )
    )


Script = Callable[[grpc.aio.ServicerContext], AsyncIterator[events_pb2.GenerationEvent]]


async def whole_answer(_: grpc.aio.ServicerContext) -> AsyncIterator[events_pb2.GenerationEvent]:
    yield started()
    for event in chunks(0, len(TOKENS)):
        yield event
    yield finished()


def rest_of_answer(first: int, epoch: int = 2) -> Script:
    async def script(_: grpc.aio.ServicerContext) -> AsyncIterator[events_pb2.GenerationEvent]:
        yield started(epoch)
        for event in chunks(first, len(TOKENS)):
            yield event
        yield finished()

    return script


def breaks_after(num_tokens: int, *, epoch: int = 1, resumable: bool = True, **told: Any) -> Script:
    async def script(
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[events_pb2.GenerationEvent]:
        yield started(epoch, resumable=resumable, **told)
        for event in chunks(0, num_tokens):
            yield event
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    return script


def refuses(
    code: grpc.StatusCode, message: str = "no", reason: str = "", *details: Message
) -> Script:
    """Answers with a status; the reason, if any, travels as ErrorInfo beside the other details."""
    status = Status(code=code.value[0], message=message)
    info = (ErrorInfo(reason=reason, domain="specmesh.dev"),) if reason else ()
    for detail in (*info, *details):
        status.details.add().Pack(detail)

    async def script(
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[events_pb2.GenerationEvent]:
        await context.abort_with_status(rpc_status.to_status(status))
        yield events_pb2.GenerationEvent()

    return script


def taken_at(epoch: int) -> Script:
    """Answers that the session stands at ``epoch``."""
    info = ErrorInfo(reason="STALE_EPOCH", domain="specmesh.dev")
    info.metadata["current_epoch"] = str(epoch)
    return refuses(grpc.StatusCode.ABORTED, "taken", "", info)


class FakeOrchestrator(GenerationServiceServicer):
    """Plays its scripts in order, one a call; keeps what it was asked."""

    def __init__(self, generate: Iterable[Script] = (), resume: Iterable[Script] = ()) -> None:
        self.generate_scripts = list(generate)
        self.resume_scripts = list(resume)
        self.requests: list[pb.GenerateRequest] = []
        self.resumes: list[pb.ResumeRequest] = []
        self.metadata: list[dict[str, str | bytes]] = []
        self.cancelled = asyncio.Event()
        self.address = ""

    async def Generate(self, request, context):  # noqa: N802
        self.requests.append(request)
        async for event in self._play(self.generate_scripts.pop(0), context):
            yield pb.GenerateResponse(event=event)

    async def Resume(self, request, context):  # noqa: N802
        self.resumes.append(request)
        async for event in self._play(self.resume_scripts.pop(0), context):
            yield pb.ResumeResponse(event=event)

    async def GenerateMany(self, request_iterator, context):  # noqa: N802
        asked = held(request_iterator), context, self._one, pb.GenerateManyResponse, One.of
        async with aclosing(answer_many(*asked)) as messages:
            async for message in messages:
                yield message

    async def _one(self, request, context, send):
        kind = request.WhichOneof("request")
        answer = self.Generate if kind == "generate" else self.Resume
        async with aclosing(answer(getattr(request, kind), context)) as responses:
            async for response in responses:
                await send(pb.GenerateResponse(event=response.event)).sent()

    async def ListModels(self, request, context):  # noqa: N802
        strategy = served_model_pb2.StrategyInfo(
            name="autoregressive", lossless=True, available=True
        )
        model = served_model_pb2.ServedModel(
            num_verifiers=2, strategies=[strategy], default_lookahead=4
        )
        pages = {"": ("toy", "next"), "next": ("other", "")}
        model.target.name, next_page_token = pages[request.page_token]
        return served_model_pb2.ListModelsResponse(models=[model], next_page_token=next_page_token)

    async def _play(self, script: Script, context):
        self.metadata.append(dict(context.invocation_metadata()))
        try:
            async for event in script(context):
                yield event
        except (asyncio.CancelledError, GeneratorExit):  # while it waits, or while an event is sent
            self.cancelled.set()
            raise


class One(OneWithMetadata):
    """One answer on a call that carries many, whose scripts may abort it."""

    @classmethod
    def of(cls, context, request):
        metadata = [
            (key, value if key.endswith("-bin") else value.decode())
            for key, value in request.metadata.items()
        ]
        return cls(context, "", metadata, request.timeout.ToTimedelta().total_seconds())

    async def abort(self, code, details):
        status = Status(code=code.value[0], message=details)
        await self.abort_with_status(rpc_status.to_status(status))


async def held(messages):
    async for message in messages:
        yield HeldMessage(message, {}, lambda: None)


Serve = Callable[[FakeOrchestrator], Awaitable[FakeOrchestrator]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[grpc.aio.Server] = []

    async def start(fake: FakeOrchestrator) -> FakeOrchestrator:
        server = grpc.aio.server()
        add_GenerationServiceServicer_to_server(fake, server)
        fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        servers.append(server)
        return fake

    yield start
    for server in servers:
        await server.stop(None)
