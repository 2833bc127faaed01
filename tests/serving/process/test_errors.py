"""What a caller is told, over a real socket, for whatever a handler raises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from specmesh.serving.errors import error_info, retry_after_s

if TYPE_CHECKING:
    from tests.serving.process.conftest import Calls, Connect, Launch

Code = grpc.StatusCode


@pytest.fixture
async def calls(launch: Launch, connect: Connect) -> Calls:
    return connect((await launch()).address)


async def failure(call: object) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value


@pytest.mark.parametrize(
    ("wish", "code", "reason", "metadata", "message"),
    [
        ("not-found", Code.NOT_FOUND, "SESSION_UNKNOWN", {"session_id": "s1"}, "no such session"),
        ("precondition", Code.FAILED_PRECONDITION, "PREFIX_UNKNOWN", {"held": "32"}, "send it"),
        ("aborted", Code.ABORTED, "STALE_EPOCH", {}, "somebody else"),
        ("exhausted", Code.RESOURCE_EXHAUSTED, "QUEUE_FULL", {}, "too many"),
        ("unavailable", Code.UNAVAILABLE, "STORE_AWAY", {}, "no answer"),
        ("not-finite", Code.FAILED_PRECONDITION, "LOGITS_NOT_FINITE", {}, "no finite maximum"),
        (
            *("invalid", Code.INVALID_ARGUMENT, "INVALID_FIELD", {"field": "tree.parents[2]"}),
            "tree.parents[2]: must come earlier",
        ),
    ],
)
async def test_error_arrives_with_code_reason_and_metadata(
    calls: Calls, wish: str, code: Code, reason: str, metadata: dict[str, str], message: str
):
    stream = calls.draft(wish)
    assert (await stream.read()).token_ids == [1]
    for error in (await failure(calls.verify(wish)), await failure(stream.read())):
        info = error_info(error)
        assert error.code() is code
        assert (info.domain, info.reason, dict(info.metadata)) == ("specmesh.dev", reason, metadata)
        assert error.details().startswith(message)


async def test_invalid_field_is_named_in_a_bad_request(calls: Calls):
    call = calls.verify("invalid")
    await failure(call)
    status = await rpc_status.aio.from_call(call)
    found = BadRequest()
    assert any(detail.Unpack(found) for detail in status.details)
    assert [(v.field, v.description) for v in found.field_violations] == [
        ("tree.parents[2]", "must come earlier")
    ]


async def test_resource_exhausted_says_when_to_come_again(calls: Calls):
    assert retry_after_s(await failure(calls.verify("exhausted"))) == 0.25
    assert retry_after_s(await failure(calls.verify("unavailable"))) is None


async def test_unexpected_error_is_internal_and_logged_but_not_told(
    launch: Launch, connect: Connect
):
    process = await launch()
    call = connect(process.address).verify("unexpected")
    error = await failure(call)
    assert error.code() is Code.INTERNAL
    assert error_info(error).reason == "INTERNAL"
    assert "the secret" not in str(error)
    assert "the secret" not in str(await call.trailing_metadata())
    line = await process.logged("call failed")
    assert line["method"] == "specmesh.mesh.v1alpha1.VerifierService/Verify"
    assert "RuntimeError: the secret" in line["exception"]
    assert dict(error_info(error).metadata) == {"request_id": line["request_id"]}


async def test_each_unexpected_error_has_an_id_of_its_own(calls: Calls):
    errors = [await failure(calls.verify("unexpected")) for _ in range(2)]
    assert len({error_info(error).metadata["request_id"] for error in errors}) == 2


async def test_unexpected_error_amid_a_stream_keeps_what_was_sent(calls: Calls):
    stream = calls.draft("unexpected")
    assert (await stream.read()).token_ids == [1]
    assert (await failure(stream.read())).code() is Code.INTERNAL


async def test_error_of_another_peer_has_no_reason(calls: Calls):
    check = health_pb2_grpc.HealthStub(calls.channel).Check
    error = await failure(check(health_pb2.HealthCheckRequest(service="nobody")))
    assert error.code() is Code.NOT_FOUND
    assert error_info(error) is None


async def test_cancel_reaches_the_handler_and_is_no_failure(launch: Launch, connect: Connect):
    process = await launch()
    calls = connect(process.address)
    call = calls.verify("wait")
    await process.logged("waiting")
    call.cancel()
    await process.logged("cancelled")
    assert (await calls.verify()).next_token_id == 7
    assert "call failed" not in [line["event"] for line in process.log]


@pytest.mark.parametrize("wish", ["wait", "wait-first"])
async def test_cancelled_stream_runs_its_clean_up(launch: Launch, connect: Connect, wish: str):
    process = await launch()
    stream = connect(process.address).draft(wish)
    await process.logged("waiting")
    stream.cancel()
    await process.logged("draft closed")
    assert "call failed" not in [line["event"] for line in process.log]


async def test_deadline_reaches_the_handler(launch: Launch, connect: Connect):
    process = await launch()
    call = connect(process.address).verify("wait", timeout=1)
    await process.logged("waiting")
    assert (await failure(call)).code() is Code.DEADLINE_EXCEEDED
    await process.logged("cancelled")


async def test_stream_left_unread_is_closed_with_its_call(launch: Launch, connect: Connect):
    process = await launch()
    calls = connect(process.address)
    streams = [calls.draft() for _ in range(50)]
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*(calls.verify() for _ in range(5)))
    process.signal()
    assert await process.ended() == 0
    assert "call failed" not in [line["event"] for line in process.log]
