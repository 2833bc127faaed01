"""Replicas that lack the open calls are asked by the older way: a call for each request."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest
from tests.orchestrator.answers import NUM_TOKENS, alone, collect, request
from tests.orchestrator.peers import Drafter, Filter, Verifier, hang
from tests.orchestrator.test_stream_pool import VERIFY, drafted, soon, verify

from specmesh.mesh.v1alpha1 import confidence_pb2, drafter_pb2, verifier_pb2
from specmesh.orchestrator.replicas.transport import stream_pool
from specmesh.orchestrator.strategies import LOSSLESS


class OldVerifier(Verifier):
    """Of the time before VerifyEach."""

    def __init__(self) -> None:
        super().__init__()
        self.traced: list[str] = []
        self.num_asked = 0

    def _register(self, server: grpc.aio.Server) -> None:
        handler = grpc.unary_unary_rpc_method_handler(
            self._traced,
            verifier_pb2.VerifyRequest.FromString,
            verifier_pb2.VerifyResponse.SerializeToString,
        )
        add(server, self.service, {"Verify": handler})

    async def _traced(self, message, context):
        self.num_asked += 1
        self.traced += [v for key, v in context.invocation_metadata() if key == "traceparent"]
        return await self.Verify(message, context)


class OldDrafter(Drafter):
    """Of the time before DraftEach."""

    def _register(self, server: grpc.aio.Server) -> None:
        handler = grpc.unary_stream_rpc_method_handler(
            self.Draft,
            drafter_pb2.DraftRequest.FromString,
            drafter_pb2.DraftResponse.SerializeToString,
        )
        add(server, self.service, {"Draft": handler})


class OldFilter(Filter):
    """Of the time before AssessEach."""

    def _register(self, server: grpc.aio.Server) -> None:
        handler = grpc.unary_stream_rpc_method_handler(
            lambda message, _: self._assess(message),
            confidence_pb2.AssessRequest.FromString,
            confidence_pb2.AssessResponse.SerializeToString,
        )
        add(server, self.service, {"Assess": handler})


def add(server: grpc.aio.Server, service: str, handlers: dict) -> None:
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])


@pytest.mark.parametrize("strategy", LOSSLESS)
async def test_old_replicas_give_the_same_answer(connect, serve, strategy):
    mesh = await connect([OldVerifier(), OldVerifier()], [OldDrafter()])
    stub = await serve(mesh)
    asked = request(speculation={"strategy": strategy})
    assert (await collect(stub.Generate(asked))).tokens == alone(asked.sampling)


async def test_old_and_new_replicas_serve_together(connect, serve):
    verifiers = [OldVerifier(), Verifier()]
    stub = await serve(await connect(verifiers, [OldDrafter(), Drafter()]))
    asked = [request(sampling={"temperature": 0.8, "seed": seed}) for seed in range(6)]
    answers = await asyncio.gather(*(collect(stub.Generate(each)) for each in asked))
    assert [each.tokens for each in answers] == [alone(each.sampling) for each in asked]
    assert all(each.requests for each in verifiers)


async def test_an_old_filter_keeps_what_a_new_one_would(connect, serve):
    kept = []
    for service in (Filter(0.5), OldFilter(0.5)):
        stub = await serve(await connect([Verifier()], [Drafter(agreement=0.5)], [service]))
        asked = request(sampling={"temperature": 0}, speculation={"strategy": "filter"})
        answer = await collect(stub.Generate(asked))
        assert len(answer.tokens) == NUM_TOKENS
        assert service.assessed
        kept.append((answer.tokens, answer.unchecked))
    assert kept[0] == kept[1]
    assert kept[0][1]


async def test_a_replica_is_asked_only_once_in_a_while_what_it_lacks(connect, monkeypatch):
    old = OldVerifier()
    peer = (await connect([old])).mesh.verifiers.peers[0]
    tokens = {await verify(peer) for _ in range(3)}
    await old.die()
    new = Verifier()
    new.address = old.address
    await new.start()
    try:
        await peer.channel.channel_ready()
        tokens.add(await verify(peer))
        assert (new.num_open_calls, len(new.requests)) == (0, 1)
        monkeypatch.setattr(peer.verifications, "_lacking_until", 0.0)
        tokens |= {await verify(peer) for _ in range(2)}
        assert (new.num_open_calls, len(new.requests)) == (1, 3)
    finally:
        await new.die()
    assert len(tokens) == 1
    assert old.num_asked == 3


async def test_an_old_replica_gets_the_trace_of_a_request(connect):
    old = OldVerifier()
    peer = (await connect([old])).mesh.verifiers.peers[0]
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    message = verifier_pb2.VerifyEachRequest(
        request=VERIFY.request, trace_context={"traceparent": traceparent}
    )
    async with peer.verifications.send(message, soon()) as exchange:
        await exchange.read()
    assert old.traced == [traceparent]


async def test_cancelling_a_request_stops_an_old_replica(connect):
    old = OldVerifier()
    peer = (await connect([old])).mesh.verifiers.peers[0]
    await verify(peer)
    old.arrived.clear()
    old.always = hang
    task = asyncio.create_task(verify(peer))
    await old.arrived.wait()
    task.cancel()
    async with asyncio.timeout(10):
        await old.cancelled.wait()


async def test_an_old_drafters_failure_is_told_as_it_is(connect):
    old = OldDrafter()
    peer = (await connect([Verifier()], [old])).mesh.drafters.peers[0]
    assert [part.last for part in await drafted(peer)] == [False, False, False, True]

    async def fail() -> None:
        raise ZeroDivisionError

    old.always = fail
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await drafted(peer)
    assert failure.value.code() is grpc.StatusCode.INTERNAL


async def test_an_open_call_of_some_age_gets_no_more_requests(connect, monkeypatch):
    fake = Verifier()
    peer = (await connect([fake])).mesh.verifiers.peers[0]
    for _ in range(2):
        await verify(peer)
    assert fake.num_open_calls == 1
    monkeypatch.setattr(stream_pool, "MAX_AGE_SECONDS", -1.0)
    await verify(peer)
    assert fake.num_open_calls == 2
