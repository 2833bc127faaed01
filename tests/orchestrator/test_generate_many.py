"""Answers on a call that carries many: each is as if it had a call of its own."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from tests.orchestrator import answers
from tests.orchestrator.answers import NUM_TOKENS, Answer, alone, collect, resuming
from tests.orchestrator.peers import Hold, Verifier, passing
from tests.servers import running_server
from tests.serving.conftest import RedisServer

from specmesh.orchestrator.__main__ import OrchestratorService
from specmesh.orchestrator.requests.many_requests import one_of_many
from specmesh.orchestrator.settings import OrchestratorSettings
from specmesh.serving.rpc.interceptors import CallInterceptor
from specmesh.serving.rpc.many import answer_many
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import sampling_pb2
from specmesh.v1.generation_pb2_grpc import (
    GenerationServiceServicer,
    GenerationServiceStub,
    add_GenerationServiceServicer_to_server,
)

SAMPLINGS: tuple[dict[str, object], ...] = (
    {"temperature": 0},
    {"temperature": 0.9, "seed": 4},
    {"temperature": 0.9, "seed": 5, "acceptance_mode": "ACCEPTANCE_MODE_REJECTION"},
)


def request(**fields: object) -> pb.GenerateRequest:
    return answers.request(speculation={"strategy": "autoregressive"}, **fields)


class Many:
    """One call, and what has come of each of its requests."""

    def __init__(self, stub: Any, **options: Any) -> None:
        self._call = stub.GenerateMany(timeout=30, **options)
        self.answers: dict[int, Answer] = {}
        self.failures: dict[int, tuple[grpc.StatusCode, str]] = {}
        self.ended: set[int] = set()

    async def ask(self, number: int, **fields: Any) -> None:
        message = pb.GenerateManyRequest()
        message.requests.add(number=number, request=pb.GenerateEachRequest(**fields))
        await self._call.write(message)

    async def cancel(self, number: int) -> None:
        await self._call.write(pb.GenerateManyRequest(cancelled=[number]))

    async def read(self) -> None:
        for each in (await self._call.read()).responses:
            assert each.number not in self.ended | set(self.failures)
            if each.HasField("response"):
                self.answers.setdefault(each.number, Answer()).add(each.response.event)
            elif each.HasField("failure"):
                self.failures[each.number] = _code(each.failure.code), _about(each.failure)
            else:
                self.ended.add(each.number)

    async def read_all(self, num: int) -> None:
        """Read until ``num`` requests have ended."""
        while len(self.ended) + len(self.failures) < num:
            await self.read()

    async def close(self) -> None:
        """End the call, which must end well."""
        await self._call.done_writing()
        assert await self._call.read() is grpc.aio.EOF
        assert await self._call.code() is grpc.StatusCode.OK


def _code(number: int) -> grpc.StatusCode:
    (code,) = (each for each in grpc.StatusCode if each.value[0] == number)
    return code


def _about(failure: pb.RequestFailure) -> str:
    """The wrong field, or else the reason."""
    about = ""
    for detail in status_pb2.Status.FromString(failure.status_details).details:
        wrong, info = error_details_pb2.BadRequest(), error_details_pb2.ErrorInfo()
        if detail.Unpack(wrong):
            return wrong.field_violations[0].field
        if detail.Unpack(info):
            about = info.reason
    return about


async def test_answers_are_those_of_calls_of_their_own(connect, serve):
    stub = await serve(await connect([Verifier(), Verifier()]))
    many = Many(stub)
    asked = [request(sampling=each) for each in SAMPLINGS for _ in range(4)]
    for number, each in enumerate(asked):
        await many.ask(number, generate=each)
    await many.read_all(len(asked))
    for number, each in enumerate(asked):
        answer, own = many.answers[number], await collect(stub.Generate(each))
        assert answer.finished is not None
        assert (answer.tokens, answer.text) == (own.tokens, own.text)
        if each.sampling.acceptance_mode != sampling_pb2.ACCEPTANCE_MODE_REJECTION:
            assert answer.tokens == alone(each.sampling)
    assert not many.failures
    await many.close()


@pytest.mark.parametrize(
    ("fields", "about"),
    [
        ({}, "request"),
        ({"generate": request(text="")}, "text"),
        ({"generate": request(), "timeout": {"seconds": -1}}, "timeout"),
        ({"generate": request(), "metadata": {"traceparent": b"\xff"}}, "metadata"),
        ({"generate": request(), "metadata": {"x": b"y" * 20_000}}, "metadata"),
        (
            {"generate": request(), "metadata": {"specmesh-chunk-interval-ms": b"none"}},
            "specmesh-chunk-interval-ms",
        ),
        ({"resume": pb.ResumeRequest(session_id="s", epoch=1)}, "resume_token"),
    ],
)
async def test_a_wrong_request_is_refused_by_its_field_and_alone(connect, serve, fields, about):
    many = Many(await serve(await connect([Verifier()])))
    await many.ask(1, **fields)
    await many.ask(2, generate=request())
    await many.read_all(2)
    assert many.failures == {1: (grpc.StatusCode.INVALID_ARGUMENT, about)}
    assert len(many.answers[2].tokens) == NUM_TOKENS
    await many.close()


async def test_a_deadline_is_that_of_its_answer_alone(connect, serve):
    verifier = Verifier()
    many = Many(await serve(await connect([verifier])))
    verifier.always = hold = Hold()
    await many.ask(1, generate=request(), timeout={"nanos": 50_000_000})
    await many.ask(2, generate=request())
    await many.read_all(1)
    hold.released.set()
    await many.read_all(2)
    assert many.failures == {1: (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE")}
    assert len(many.answers[2].tokens) == NUM_TOKENS


async def test_the_calls_deadline_holds_for_answers_without_one(connect, serve):
    verifier = Verifier()
    stub = await serve(await connect([verifier]))
    verifier.always = Hold()
    call = stub.GenerateMany(timeout=0.1)
    message = pb.GenerateManyRequest()
    message.requests.add(number=1, request=pb.GenerateEachRequest(generate=request()))
    await call.write(message)
    assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_cancelled_answer_stops_and_says_nothing_more(connect, serve):
    verifier = Verifier()
    many = Many(await serve(await connect([verifier])))
    verifier.always = hold = Hold()
    await many.ask(1, generate=request())
    await hold.reached.wait()
    await many.cancel(1)
    verifier.always = passing
    await many.ask(2, generate=request(cache_salt="another"))
    hold.released.set()
    await many.read_all(1)
    assert many.ended == {2}
    await many.close()


async def test_a_broken_call_ends_all_of_its_answers(connect, serve):
    verifier = Verifier()
    behind = await connect([verifier])
    many = Many(await serve(behind))
    verifier.always = hold = Hold()
    for number in range(3):
        await many.ask(number, generate=request(cache_salt=f"{number}"))
    await hold.reached.wait()
    many._call.cancel()
    async with asyncio.timeout(5):
        while behind.mesh.admission.num_running:  # noqa: ASYNC110 - a gauge, not an event
            await asyncio.sleep(0.01)


@pytest.fixture
async def guarded(tmp_path, redis_server: RedisServer):
    """An orchestrator that asks for the tokens of alice, bob, and a gateway."""
    tokens = tmp_path / "tokens.json"
    named = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), **role}
        for name, role in (("alice", {}), ("bob", {}), ("door", {"role": "gateway"}))
    ]
    tokens.write_text(json.dumps(named))
    verifier = Verifier()
    await verifier.start()
    settings = OrchestratorSettings(
        port=0,
        verifiers=verifier.address,
        strategy="autoregressive",
        drain_seconds=0,
        tokens=tokens,
        redis_url=redis_server.url,
        max_answers_per_identity=1,
    )
    async with (
        running_server(settings, OrchestratorService(settings)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield GenerationServiceStub(channel), verifier
    await verifier.die()


def bearing(token: str, **more: bytes) -> Mapping[str, bytes]:
    metadata = {"authorization": f"Bearer {token}".encode()}
    return metadata | {key.replace("_", "-"): value for key, value in more.items()}


async def test_each_answer_is_that_of_its_own_caller(guarded):
    stub, verifier = guarded
    many = Many(stub, metadata=(("authorization", "Bearer door"),))
    verifier.always = hold = Hold()
    await many.ask(1, generate=request(), metadata=bearing("alice"))
    await hold.reached.wait()
    await many.ask(2, generate=request(), metadata=bearing("alice"))
    await many.ask(3, generate=request(), metadata=bearing("mallory"))
    await many.ask(4, generate=request())  # the call's own token is not lent
    await many.ask(5, generate=request(), metadata=bearing("bob", specmesh_caller_bin=b"x"))
    while len(many.failures) < 4:
        await many.read()
    hold.released.set()
    for number, who in ((6, b"carol"), (7, b"dave")):
        of = bearing("door", specmesh_caller_bin=who)
        await many.ask(number, generate=request(), metadata=of)
    await many.read_all(7)
    assert many.ended == {1, 6, 7}
    assert many.failures == {
        2: (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED"),
        3: (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
        4: (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
        5: (grpc.StatusCode.PERMISSION_DENIED, "NOT_A_GATEWAY"),
    }


async def test_a_session_is_resumed_by_its_own_caller_alone(guarded):
    stub, _ = guarded
    many = Many(stub, metadata=(("authorization", "Bearer door"),))
    await many.ask(1, generate=request(), metadata=bearing("alice"))
    await many.read_all(1)
    begun = Answer(many.answers[1].started, many.answers[1].chunks[:1])
    await many.ask(2, resume=resuming(begun), metadata=bearing("bob"))
    await many.ask(3, resume=resuming(begun), metadata=bearing("alice"))
    await many.read_all(3)
    assert many.failures == {2: (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")}
    assert begun.then(many.answers[3]).tokens == many.answers[1].tokens


async def test_each_request_is_counted_and_traced_as_its_own_method():
    seen = []

    @contextmanager
    def layer(observed):
        seen.append((observed.method, observed.context.invocation_metadata()))
        yield

    class Silent(GenerationServiceServicer):
        def GenerateMany(self, request_iterator, context):  # noqa: N802
            async def nothing(*_):
                pass

            asked = request_iterator, context, nothing, pb.GenerateManyResponse
            return answer_many(*asked, one_of_many)

    server = grpc.aio.server(interceptors=[CallInterceptor([layer])])
    add_GenerationServiceServicer_to_server(Silent(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        many = Many(GenerationServiceStub(channel))
        await many.ask(1, generate=request(), metadata={"traceparent": b"first"})
        await many.ask(2, resume=pb.ResumeRequest(), metadata={"x-bin": b"\xff"})
        await many.read_all(2)
    await server.stop(None)
    service = "specmesh.v1.GenerationService"
    assert seen == [
        (f"{service}/Generate", [("traceparent", "first")]),
        (f"{service}/Resume", [("x-bin", b"\xff")]),
    ]


async def test_a_call_needs_a_token_to_be_opened(guarded):
    stub, _ = guarded
    call = stub.GenerateMany(timeout=10)
    assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
