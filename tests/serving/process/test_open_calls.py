"""Many requests on one open call, each answered as a call of its own would be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from specmesh.mesh.v1alpha1 import drafter_pb2, drafter_pb2_grpc, verifier_pb2, verifier_pb2_grpc
from specmesh.serving.errors import error_info

if TYPE_CHECKING:
    from tests.serving.process.conftest import Calls, Collector, Connect, Launch

VERIFY = "specmesh.mesh.v1alpha1.VerifierService/Verify"
DRAFT = "specmesh.mesh.v1alpha1.DrafterService/Draft"
TRACES = ["0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"]
PARENT_ID = "b7ad6b7169203331"


def trace_context(trace_id: str) -> dict[str, str]:
    return {"traceparent": f"00-{trace_id}-{PARENT_ID}-01"}


def verification(wish: str = "", trace_id: str | None = None) -> verifier_pb2.VerifyEachRequest:
    return verifier_pb2.VerifyEachRequest(
        request=verifier_pb2.VerifyRequest(prefix={"session_id": wish}),
        trace_context=trace_context(trace_id) if trace_id else {},
    )


def open_call(calls: Calls) -> Any:
    return verifier_pb2_grpc.VerifierServiceStub(calls.channel).VerifyEach(timeout=30)


def open_draft_call(calls: Calls) -> Any:
    return drafter_pb2_grpc.DrafterServiceStub(calls.channel).DraftEach(timeout=30)


async def failure(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call.read()
    info = error_info(raised.value)
    return raised.value.code(), info.reason if info else ""


async def test_each_request_gets_its_answer(launch: Launch, connect: Connect):
    call = open_call(connect((await launch()).address))
    for _ in range(3):
        await call.write(verification())
        assert (await call.read()).response.next_token_id == 7


async def test_a_draft_ends_with_the_word_that_it_does(launch: Launch, connect: Connect):
    call = open_draft_call(connect((await launch()).address))
    for _ in range(2):
        await call.write(drafter_pb2.DraftEachRequest())
        parts = [await call.read() for _ in range(3)]
        assert [list(part.response.token_ids) for part in parts] == [[1], [2], []]
        assert [part.last for part in parts] == [False, False, True]


async def test_an_error_ends_the_call_with_its_status(launch: Launch, connect: Connect):
    call = open_call(connect((await launch()).address))
    await call.write(verification())
    await call.read()
    await call.write(verification("precondition"))
    assert await failure(call) == (grpc.StatusCode.FAILED_PRECONDITION, "PREFIX_UNKNOWN")


async def test_each_request_continues_its_own_trace(
    launch: Launch, connect: Connect, collector: Collector
):
    process = await launch(env=collector.env)
    call = open_call(connect(process.address))
    for trace_id in TRACES:
        await call.write(verification("annotate", trace_id))
        await call.read()
    for trace_id in TRACES:
        span = await collector.received(trace_id=bytes.fromhex(trace_id))
        assert (span.name, span.parent_span_id.hex()) == (VERIFY, PARENT_ID)


async def test_cancelling_the_call_stops_the_request_at_work(
    launch: Launch, connect: Connect, collector: Collector
):
    process = await launch(env=collector.env)
    call = open_draft_call(connect(process.address))
    request = drafter_pb2.DraftRequest(prefix={"session_id": "wait"})
    await call.write(drafter_pb2.DraftEachRequest(request=request))
    await call.read()
    await process.logged("waiting")
    call.cancel()
    await process.logged("cancelled")
    await process.logged("draft closed")
    span = await collector.received(name=DRAFT)
    assert {item.key for item in span.attributes} >= {"specmesh.cancelled"}


async def test_an_idle_call_does_not_hold_up_the_end(launch: Launch, connect: Connect):
    process = await launch("--drain-seconds", "60")
    call = open_call(connect(process.address))
    await call.write(verification())
    await call.read()
    process.signal()
    assert await process.ended() == 0


async def test_a_request_at_work_is_answered_and_the_next_refused_while_draining(
    launch: Launch, connect: Connect
):
    process = await launch("--drain-seconds", "60")
    calls = connect(process.address)
    call, other, third = (open_call(calls) for _ in range(3))
    for one in (other, third):
        await one.write(verification())
        await one.read()
    await call.write(verification("wait"))
    await process.logged("waiting")
    await third.write(verification("wait"))
    await process.logged("waiting")
    process.signal()
    await process.logged("draining")
    await other.write(verification())
    assert await failure(other) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    process.go_on()
    process.go_on()
    for one in (call, third):
        assert (await one.read()).response.next_token_id == 7
    assert await process.ended() == 0


async def test_a_call_is_open_before_anything_is_asked(launch: Launch, connect: Connect):
    """gRPC leaks in a client that cancels before it has heard from the server."""
    call = open_call(connect((await launch()).address))
    async with asyncio.timeout(10):
        assert await call.initial_metadata() is not None
    call.cancel()
