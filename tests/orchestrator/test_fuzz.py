"""Whatever is sent, a client is told what is wrong with it, and no replica hears of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import NamedTuple

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from hypothesis import HealthCheck, given, settings
from tests.fuzz import arrivals, names_a_field
from tests.orchestrator.answers import Answer, collect
from tests.orchestrator.face import CHATML, Face, face, template
from tests.orchestrator.peers import Drafter, Filter, Verifier

from specmesh.v1 import (
    errors_pb2,
    generation_pb2,
    generation_pb2_grpc,
    scoring_pb2,
    served_model_pb2,
    session_pb2,
    tokenizer_pb2,
)

METHODS = {
    method.name: method
    for service in (
        generation_pb2.DESCRIPTOR.services_by_name["GenerationService"],
        tokenizer_pb2.DESCRIPTOR.services_by_name["TokenizerService"],
    )
    for method in service.methods
    if not method.client_streaming  # GenerateMany has a test of its own
}
GENERATE = generation_pb2.GenerateRequest(
    text="return",
    sampling={"temperature": 0.5, "seed": 1},
    stopping={"max_tokens": 4, "stop_token_ids": [1], "stop_strings": ["never said"]},
    speculation={
        "strategy": "filter",
        "lookahead": 2,
        "filter": {"scorer": "margin", "follow_load": {"lowest": 0.25, "highest": 0.5}},
    },
    received={"token_ids": [70], "unchecked": [0]},
)
CHAT = {
    "messages": [{"role": "user", "content": "hello"}],
    "template_arguments": {"n": 1, "tools": [{"name": "f"}]},
}
VALID: dict[str, Message] = {
    "Generate": GENERATE,
    "Complete": generation_pb2.CompleteRequest(
        request={"chat": CHAT, "stopping": {"max_tokens": 2}, "num_top_logprobs": 2}
    ),
    "Resume": generation_pb2.ResumeRequest(epoch=2, received=GENERATE.received),
    "GetSession": session_pb2.GetSessionRequest(),
    "CancelSession": session_pb2.CancelSessionRequest(),
    "ListModels": served_model_pb2.ListModelsRequest(page_size=1),
    "Score": scoring_pb2.ScoreRequest(tokens={"token_ids": [70, 71]}, num_top_logprobs=1),
    "Tokenize": tokenizer_pb2.TokenizeRequest(text="return", add_special_tokens=False),
    "Detokenize": tokenizer_pb2.DetokenizeRequest(token_ids=[70, 71], keep_special_tokens=True),
    "ApplyChatTemplate": tokenizer_pb2.ApplyChatTemplateRequest(chat=CHAT),
}
"""Requests that are answered; those for a session lack its id and token."""
CODES = {
    name.removeprefix("ERROR_REASON_"): value.GetOptions().Extensions[errors_pb2.error].grpc_code
    for name, value in errors_pb2.ErrorReason.DESCRIPTOR.values_by_name.items()
}
OUR_FAULT = {"INTERNAL", "UNSPECIFIED"}
ANSWER_SECONDS = 20
CONTEXT_TOKENS = 48

some = settings(max_examples=150, database=None, suppress_health_check=list(HealthCheck))


class Caller:
    """Calls one method with bytes, from a thread of its own."""

    def __init__(
        self, channel: grpc.Channel, method: MethodDescriptor, replicas: list[Verifier | Drafter]
    ) -> None:
        path = f"/{method.containing_service.full_name}/{method.name}"
        read = GetMessageClass(method.output_type).FromString
        if method.server_streaming:
            stream = channel.unary_stream(path, response_deserializer=read)
            self._call = lambda request: list(stream(request, timeout=ANSWER_SECONDS))
        else:
            call = channel.unary_unary(path, response_deserializer=read)
            self._call = lambda request: [call(request, timeout=ANSWER_SECONDS)]
        self._method = method
        self._replicas = replicas

    def outcome(self, request: bytes) -> str:
        """ "OK" or the reason of the refusal. Fails unless the call is answered to the end, or
        refused as errors.proto says."""
        before = self.sessions()
        try:
            responses = self._call(request)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                assert self.sessions() == before
            return _reason(error, self._method.input_type)
        if self._method.server_streaming:
            last = responses[-1]
            assert (
                last.token_ids if self._method.name == "Score" else last.event.HasField("finished")
            )
        return "OK"

    def sessions(self) -> set[str]:
        """Those that replicas have heard of; of the ones before they may hear a little longer."""
        requests = [asked for replica in self._replicas for asked in replica.requests]
        return {asked.prefix.session_id for asked in requests}


def _reason(error: grpc.RpcError, request_type: Descriptor) -> str:
    status = rpc_status.from_call(error)
    assert status is not None, error
    info, bad_request = ErrorInfo(), BadRequest()
    assert any(detail.Unpack(info) for detail in status.details)
    assert info.domain == "specmesh.dev"
    assert info.reason not in OUR_FAULT
    assert status.code == CODES[info.reason]
    if info.reason == "INVALID_FIELD":
        assert any(detail.Unpack(bad_request) for detail in status.details)
        (violation,) = bad_request.field_violations
        assert names_a_field(request_type, violation.field), violation
    return info.reason


class World(NamedTuple):
    """An orchestrator, the replicas behind it and an answer that it has in its store."""

    face: Face
    replicas: list[Verifier | Drafter]
    answer: Answer


@pytest.fixture
async def world(connect, store_on, redis_server) -> AsyncIterator[World]:
    verifier, drafter = Verifier(context_tokens=CONTEXT_TOKENS), Drafter()
    verifier.chat_template = template(CHATML)
    behind = await connect([verifier], [drafter], [Filter()])
    async with face(behind, store_on(redis_server.url, timeout_s=10)) as clients:
        answer = await collect(clients.generation.Generate(GENERATE))
        yield World(clients, [verifier, drafter], answer)


async def test_whatever_is_sent_on_a_call_that_carries_many_is_answered_or_refused(world):
    valid = generation_pb2.GenerateManyRequest(cancelled=[7])
    sent = {"timeout": {"seconds": 5}, "metadata": {"traceparent": b"none"}}
    valid.requests.add(number=1, request={"generate": GENERATE, **sent})
    resumed = _about(world.answer, VALID["Resume"])
    valid.requests.add(number=2, request={"resume": resumed, **sent})
    refused: Counter[str] = Counter()

    def check_all() -> None:
        with grpc.insecure_channel(world.face.address) as channel:
            stub = generation_pb2_grpc.GenerationServiceStub(channel)
            many = channel.stream_stream(
                "/specmesh.v1.GenerationService/GenerateMany",
                response_deserializer=generation_pb2.GenerateManyResponse.FromString,
            )

            @some
            @given(arrivals(valid))
            def check(message: bytes) -> None:
                over: set[int] = set()
                try:
                    for told in many(iter([message]), timeout=ANSWER_SECONDS):
                        for each in told.responses:
                            assert each.number not in over
                            if not each.HasField("response"):
                                over.add(each.number)
                            if each.HasField("failure"):
                                refused[_reason_of(each.failure)] += 1
                except grpc.RpcError as error:
                    refused[_reason(error, valid.DESCRIPTOR)] += 1

            check()
            assert list(stub.Generate(GENERATE))[-1].event.HasField("finished")

    await asyncio.to_thread(check_all)
    assert refused["UNDECODABLE"]
    assert refused["INVALID_FIELD"]


def _reason_of(failure: generation_pb2.RequestFailure) -> str:
    info = ErrorInfo()
    status = Status.FromString(failure.status_details)
    assert any(detail.Unpack(info) for detail in status.details)
    assert info.reason not in OUR_FAULT
    assert failure.code == CODES[info.reason]
    return info.reason


@pytest.mark.parametrize("name", METHODS)
async def test_whatever_is_sent_is_answered_or_refused_with_a_reason(world, name):
    valid = _about(world.answer, VALID[name])

    def check_all() -> Counter[str]:
        with grpc.insecure_channel(world.face.address) as channel:
            caller = Caller(channel, METHODS[name], world.replicas)
            assert caller.outcome(valid.SerializeToString()) == "OK"
            assert world.answer.started.session_id in caller.sessions()
            outcomes: Counter[str] = Counter()

            @some
            @given(arrivals(valid))
            def check(request: bytes) -> None:
                outcomes[caller.outcome(request)] += 1

            check()
            return outcomes

    outcomes = await asyncio.to_thread(check_all)
    assert outcomes["UNDECODABLE"]
    again = await collect(world.face.generation.Generate(GENERATE))
    assert again.tokens == world.answer.tokens


def _about(answer: Answer, valid: Message) -> Message:
    """``valid``, about the session of ``answer`` if it is about one."""
    found = type(valid)()
    found.CopyFrom(valid)
    if "session_id" in valid.DESCRIPTOR.fields_by_name:
        found.session_id = answer.started.session_id
        found.resume_token = answer.started.resume_token
    return found
