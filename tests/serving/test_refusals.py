"""Whatever a server refuses, it says why in a way that programs can act on."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from tests.servers import running_server

from specmesh.decoding.errors import InvalidField
from specmesh.mesh.v1alpha1 import verifier_pb2, verifier_pb2_grpc
from specmesh.mesh.v1alpha1.drafter_pb2 import DraftRequest, DraftResponse
from specmesh.mesh.v1alpha1.drafter_pb2_grpc import (
    DrafterServiceServicer,
    add_DrafterServiceServicer_to_server,
)
from specmesh.serving.errors import ResourceExhaustedStatus, error_info
from specmesh.serving.rpc.intake import MAX_METADATA_BYTES, HeldMessage
from specmesh.serving.rpc.interceptors import CallInterceptor
from specmesh.serving.rpc.late_handlers import LateHandlers
from specmesh.serving.rpc.many import MAX_IN_MESSAGE, MAX_MESSAGE_BYTES, answer_many
from specmesh.serving.rpc.observed_request import ObservedRequest
from specmesh.serving.rpc.reported_errors import ReportingErrors
from specmesh.serving.settings import ServerSettings

VERIFY = "/specmesh.mesh.v1alpha1.VerifierService/Verify"
EACH = "/specmesh.mesh.v1alpha1.VerifierService/VerifyEach"
DRAFT = "/specmesh.mesh.v1alpha1.DrafterService/Draft"
GARBAGE = b"\xff\xff\xff\xff"
ECHO_BYTES = 3 * 10_240
NARROW = (("grpc.http2.lookahead_bytes", 5), ("grpc.http2.bdp_probe", 0))
"""Options of a client to which no message can be sent before it reads."""


class Service(verifier_pb2_grpc.VerifierServiceServicer, DrafterServiceServicer):
    """Refuses every session id by name; drafts for ever."""

    role = "verifier"
    names = ("specmesh.mesh.v1alpha1.VerifierService",)

    def __init__(self) -> None:
        self.draft_ended = asyncio.Event()
        self.hold: asyncio.Event | None = None
        self.num_held = 0

    async def start(self) -> None:
        pass

    def register(self, server: grpc.aio.Server) -> None:
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self, server)
        add_DrafterServiceServicer_to_server(self, server)

    async def stop(self) -> None:
        pass

    async def Verify(self, request, context):  # noqa: N802
        if self.hold is not None:
            self.num_held += 1
            await self.hold.wait()
        if request.prefix.session_id:
            raise InvalidField(request.prefix.session_id, f"no {request.prefix.session_id!r} here")
        return verifier_pb2.VerifyResponse()

    async def VerifyEach(self, request_iterator, context):  # noqa: N802
        async for message in request_iterator:
            yield verifier_pb2.VerifyEachResponse(
                response=await self.Verify(message.request, context)
            )

    def VerifyMany(self, request_iterator, context):  # noqa: N802
        async def each(request, _, send):
            response = await self.Verify(request.request, context)
            send(verifier_pb2.VerifyEachResponse(response=response))

        return answer_many(request_iterator, context, each, verifier_pb2.VerifyManyResponse)

    async def Draft(self, request, context):  # noqa: N802
        try:
            while True:
                yield DraftResponse(token_ids=[7] * 50_000)
        finally:
            self.draft_ended.set()


Connect = Callable[..., grpc.aio.Channel]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def connect(service: Service) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def connected(*options: tuple[str, int], **settings: float) -> grpc.aio.Channel:
            parsed = ServerSettings(drain_seconds=0, **settings)
            address = await stack.enter_async_context(running_server(parsed, service))
            options = (("grpc.max_metadata_size", 1 << 20), *options)
            channel = grpc.aio.insecure_channel(address, options=options)
            return await stack.enter_async_context(channel)

        yield connected


async def reason(call: object) -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    info = error_info(raised.value)
    return raised.value.code(), info and info.reason


INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def test_bytes_that_are_no_message_are_an_invalid_request(connect: Connect):
    channel = await connect()
    assert await reason(channel.unary_unary(VERIFY)(GARBAGE)) == (INVALID, "UNDECODABLE")
    stream = channel.unary_stream(DRAFT)(GARBAGE)
    assert await reason(stream.read()) == (INVALID, "UNDECODABLE")
    open_call = channel.stream_stream(EACH)()
    await open_call.write(GARBAGE)
    assert await reason(open_call.read()) == (INVALID, "UNDECODABLE")


def nested(field: int, *parts: bytes) -> bytes:
    """A message whose field of that number holds a message of ``parts``."""
    data = b"".join(parts)
    return bytes([field << 3 | 2, len(data)]) + data


UNKNOWN = b"\xf8\x07\x05"
"""Field 127, a number."""
TOKENS = nested(3, b"\x01\x02")
"""``Prefix.token_ids``."""
NEWER = {
    "127": UNKNOWN,
    "prefix.127": nested(1, TOKENS, UNKNOWN),
    "tree.draft_distributions[1].127": nested(2, nested(3), nested(3, UNKNOWN)),
}
"""A request of a newer client by the path of the field that makes it newer."""


@pytest.mark.parametrize(("path", "data"), NEWER.items(), ids=list(NEWER))
async def test_what_this_server_does_not_know_is_refused_by_name(
    connect: Connect, service: Service, path: str, data: bytes
):
    service.hold = asyncio.Event()  # nothing may be done before
    channel = await connect()
    open_call = channel.stream_stream(EACH)()
    await open_call.write(nested(1, data))
    for call, expected in (
        (channel.unary_unary(VERIFY)(data), path),
        (open_call.read(), f"request.{path}"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        info = error_info(raised.value)
        assert info is not None
        assert (raised.value.code(), info.reason) == (INVALID, "UNKNOWN_FIELD")
        assert info.metadata["field"] == expected
    assert await reason(channel.unary_stream(DRAFT)(UNKNOWN).read()) == (INVALID, "UNKNOWN_FIELD")
    assert service.num_held == 0


async def test_a_field_that_is_nowhere_near_is_refused_without_a_name(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("specmesh.serving.rpc.unknown_fields.MAX_SEARCHED", 3)
    channel = await connect()
    data = nested(2, *[nested(3)] * 2, nested(3, UNKNOWN))
    assert await reason(channel.unary_unary(VERIFY)(data)) == (INVALID, "UNKNOWN_FIELD")


async def test_a_message_that_is_written_in_an_unusual_way_is_none_the_worse(connect: Connect):
    """Defaults written out, fields twice, numbers not packed."""
    channel = await connect()
    verify = channel.unary_unary(VERIFY)
    await verify(b"\x20\x00" + nested(1, b"\x18\x01", b"\x18\x02") + nested(1, TOKENS))


async def test_a_refusal_leaves_nothing_to_the_garbage_collector(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    channel, gone, status_of = await connect(), asyncio.Semaphore(0), ReportingErrors._status_of

    def watched(self: ReportingErrors, error: Exception) -> grpc.Status:
        weakref.finalize(error, gone.release)
        return status_of(self, error)

    monkeypatch.setattr(ReportingErrors, "_status_of", watched)
    gc.collect()
    gc.disable()  # many refusals would have it stop all calls again and again
    try:
        for call in (
            channel.unary_unary(VERIFY)(UNKNOWN),
            channel.unary_stream(DRAFT)(UNKNOWN).read(),
            channel.unary_unary("/test.Unknown/Method")(b""),
        ):
            await reason(call)
            async with asyncio.timeout(5):
                await gone.acquire()
    finally:
        gc.enable()


async def test_a_message_beyond_the_limit_says_so(connect: Connect):
    channel = await connect(max_request_bytes=1 << 16)
    verify = channel.unary_unary(VERIFY)
    large = verifier_pb2.VerifyRequest(prefix={"token_ids": [1] * (1 << 16)}).SerializeToString()
    assert await reason(verify(large)) == (INVALID, "MESSAGE_TOO_LARGE")
    await verify(b"")


async def test_a_message_beyond_grpc_s_own_limit_is_refused_without_harm(connect: Connect):
    channel = await connect(max_request_bytes=1 << 16)
    verify = channel.unary_unary(VERIFY)
    code, _ = await reason(verify(b"\x00" * (1 << 20)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    await verify(b"")


async def test_too_much_metadata_says_so(connect: Connect):
    channel = await connect()
    metadata = (("x-note", "n" * (MAX_METADATA_BYTES + 1)),)
    call = channel.unary_unary(VERIFY)(b"", metadata=metadata)
    assert await reason(call) == (INVALID, "METADATA_TOO_LARGE")


@pytest.mark.parametrize(
    "method", ["/specmesh.mesh.v1alpha1.VerifierService/Falsify", "/nobody/nothing"]
)
async def test_a_method_that_is_not_there_is_unimplemented(connect: Connect, method: str):
    channel = await connect()
    expected = (grpc.StatusCode.UNIMPLEMENTED, "NO_SUCH_METHOD")
    assert await reason(channel.unary_unary(method)(b"")) == expected
    assert await reason(channel.unary_stream(method)(b"").read()) == expected


@pytest.mark.parametrize("letter", ["x", "\u6771", "\U0001f642", "%"])
async def test_an_error_that_repeats_a_long_name_still_arrives(connect: Connect, letter: str):
    channel = await connect()
    name = letter * (ECHO_BYTES // len(letter.encode()))
    stub = verifier_pb2_grpc.VerifierServiceStub(channel)
    call = stub.Verify(verifier_pb2.VerifyRequest(prefix={"session_id": name}))
    assert await reason(call) == (INVALID, "INVALID_FIELD")
    assert len((await call.details()).encode()) < 1100


async def test_a_reader_that_stalls_is_cut_off(connect: Connect, service: Service):
    channel = await connect(stall_seconds=0.3)
    stream = channel.unary_stream(DRAFT, DraftRequest.SerializeToString, DraftResponse.FromString)(
        DraftRequest()
    )
    await stream.read()
    await cut_off(stream, service)


async def test_a_reader_that_takes_not_even_the_first_message_is_cut_off(
    connect: Connect, service: Service
):
    channel = await connect(*NARROW, stall_seconds=0.3)
    await cut_off(channel.unary_stream(DRAFT)(b""), service)


async def test_a_call_whose_client_is_gone_ends_as_a_cancelled_one():
    """An InternalError would be logged by gRPC as an error of ours, with a traceback."""
    with pytest.raises(asyncio.CancelledError):
        async with ReportingErrors(ObservedRequest("", cast("Any", None))):
            raise grpc.aio.InternalError("a message could not be sent")


async def cut_off(stream: grpc.aio.UnaryStreamCall, service: Service) -> None:
    async with asyncio.timeout(20):
        await service.draft_ended.wait()

        async def rest() -> None:
            while await stream.read() is not grpc.aio.EOF:
                pass

        assert await reason(rest()) == (grpc.StatusCode.UNAVAILABLE, "READER_STALLED")


async def until_held(service: Service) -> None:
    async with asyncio.timeout(20):
        while not service.num_held:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)


async def test_a_connection_has_so_many_calls_open_and_no_more(connect: Connect, service: Service):
    channel = await connect(max_concurrent_streams=2)
    await channel.unary_unary(VERIFY)(b"")  # the client knows the limit now
    service.hold = asyncio.Event()
    calls = [channel.unary_unary(VERIFY)(b"") for _ in range(8)]
    await until_held(service)
    await asyncio.sleep(0.2)  # for others, if they could come
    assert service.num_held <= 2
    service.hold.set()
    # A call that comes as another ends may be refused: the server counts that one a while longer.
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert any(isinstance(answer, bytes) for answer in answers)


async def test_bytes_held_for_calls_under_way_are_bounded(connect: Connect, service: Service):
    service.hold = asyncio.Event()
    channel = await connect(max_request_bytes=90_000, max_held_bytes=100_000)
    verify = channel.unary_unary(VERIFY)
    large = verifier_pb2.VerifyRequest(prefix={"token_ids": [1] * 60_000}).SerializeToString()
    first = verify(large)
    await until_held(service)
    assert await reason(verify(large)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
    service.hold.set()
    await first
    await verify(large)


async def test_methods_that_exist_are_measured_while_a_replica_loads_and_no_others():
    measured: list[str] = []

    @contextmanager
    def layer(request: ObservedRequest) -> Iterator[None]:
        measured.append(request.method)
        yield

    server = grpc.aio.server(interceptors=[CallInterceptor([layer])])
    server.add_generic_rpc_handlers([LateHandlers(names=Service.names)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for number in range(3):
                invented = channel.unary_unary(f"/specmesh.v1.Invented/M{number}")
                expected = (grpc.StatusCode.UNAVAILABLE, "STARTING")
                assert await reason(invented(b"")) == expected
            assert await reason(channel.unary_unary(VERIFY)(b"")) == expected
    finally:
        await server.stop(None)
    assert measured == [VERIFY[1:]]


async def test_a_number_that_is_under_way_is_refused_by_its_field(
    connect: Connect, service: Service
):
    channel = await connect()
    service.hold = asyncio.Event()
    call = verifier_pb2_grpc.VerifierServiceStub(channel).VerifyMany()
    message = verifier_pb2.VerifyManyRequest()
    for _ in range(2):
        message.requests.add(number=1)
    await call.write(message)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call.read()
    info = error_info(raised.value)
    assert info is not None
    assert (raised.value.code(), info.metadata["field"]) == (INVALID, "requests.number")


async def test_requests_wait_while_nobody_reads_their_refusals():
    """Each refusal takes more memory than the request that it refuses."""
    most, num_taken, num_read = 100, 0, 0

    async def messages() -> AsyncIterator[HeldMessage]:
        nonlocal num_taken
        for first in range(0, most * MAX_IN_MESSAGE, MAX_IN_MESSAGE):
            message = verifier_pb2.VerifyManyRequest()
            numbers = range(first, first + MAX_IN_MESSAGE)
            for number in numbers:
                message.requests.add(number=number)
            num_taken += 1
            refused = dict.fromkeys(numbers, ResourceExhaustedStatus("QUEUE_FULL", "x" * 100))
            yield HeldMessage(message, refused, lambda: None)

    unused: Any = None
    told = answer_many(messages(), unused, unused, verifier_pb2.VerifyManyResponse)
    async with aclosing(told):
        async for message in told:
            await asyncio.sleep(0)
            assert num_taken - num_read / MAX_IN_MESSAGE < 20
            assert message.ByteSize() < 1.1 * MAX_MESSAGE_BYTES
            num_read += len(message.responses)
    assert num_read == most * MAX_IN_MESSAGE


async def test_a_message_has_a_limited_number_of_requests(connect: Connect, service: Service):
    call = verifier_pb2_grpc.VerifierServiceStub(await connect()).VerifyMany()
    message = verifier_pb2.VerifyManyRequest()
    for number in range(MAX_IN_MESSAGE + 1):
        message.requests.add(number=number)
    await call.write(message)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call.read()
    info = error_info(raised.value)
    assert info is not None
    assert (raised.value.code(), info.metadata["field"]) == (INVALID, "requests")


async def many_answers(channel: grpc.aio.Channel, *requests: bytes) -> dict[int, str]:
    """The reason of each refusal by number, "" for an answer; numbers begin with 1."""
    message = verifier_pb2.VerifyManyRequest()
    for number, each in enumerate(requests, start=1):
        request = verifier_pb2.VerifyEachRequest(
            request=verifier_pb2.VerifyRequest.FromString(each)
        )
        message.requests.add(number=number, request=request)
    call = verifier_pb2_grpc.VerifierServiceStub(channel).VerifyMany()
    await call.write(message)
    reasons: dict[int, str] = {}
    while len(reasons) < len(requests):
        for each in (await call.read()).responses:
            details = status_pb2.Status.FromString(each.failure.status_details).details
            info = error_details_pb2.ErrorInfo()
            reasons[each.number] = ""
            if each.HasField("failure"):
                assert details[0].Unpack(info)
                reasons[each.number] = info.reason
    call.cancel()
    return reasons


async def test_of_many_requests_only_what_is_wrong_is_refused(connect: Connect):
    channel = await connect(max_request_bytes=2048)
    plain = b""
    strange = b"\xfa\x3f\x01a"  # field 1023
    large = verifier_pb2.VerifyRequest(prefix={"token_ids": [1 << 20] * 1000}).SerializeToString()
    assert await many_answers(channel, plain, strange, large, plain) == {
        1: "",
        2: "UNKNOWN_FIELD",
        3: "MESSAGE_TOO_LARGE",
        4: "",
    }


async def test_of_many_requests_that_are_too_much_together_each_is_told_so(connect: Connect):
    channel = await connect(max_request_bytes=2048, max_held_bytes=2048)
    some = verifier_pb2.VerifyRequest(prefix={"token_ids": [1 << 20] * 400}).SerializeToString()
    assert await many_answers(channel, some, some) == {1: "OVERLOADED", 2: "OVERLOADED"}
    assert await many_answers(channel, some) == {1: ""}
