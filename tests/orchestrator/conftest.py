"""A mesh of fake peers, and a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grpc.aio
import pytest
from tests.orchestrator.peers import Drafter, Filter, Verifier
from tests.orchestrator.peers import Peer as FakePeer
from tests.serving.acl import as_documented
from tests.serving.conftest import redis_server, start_redis

from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
from specmesh.orchestrator.replicas.latencies import patience
from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.orchestrator.replicas.prefixes.holders import PrefixHolders
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.replicas.target import TargetRegistry
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.orchestrator.requests.plan import Defaults
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.orchestrator.servicer import GenerationServicer
from specmesh.orchestrator.strategies.commands import Draft
from specmesh.orchestrator.strategies.events import Drafted
from specmesh.serving.rpc.interceptors import CallInterceptor, Guard
from specmesh.serving.store.session_store import SessionStore
from specmesh.v1 import generation_pb2_grpc

__all__ = ["redis_server", "start_redis"]


@pytest.fixture(autouse=True)
def _no_hedges_by_chance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine pauses calls for longer than they may be late: only tests of lateness have
    second calls, in modules with ``HEDGES``."""
    if not getattr(request.module, "HEDGES", False):
        monkeypatch.setattr(patience, "LATE_FLOOR_SECONDS", 10.0)
        monkeypatch.setattr(patience, "LATE_UNKNOWN_SECONDS", 10.0)


async def draft(
    calls: Calls, command: Draft, context: CommandContext, deliver: Callable[[Drafted], None]
) -> None:
    """Have ``command`` drafted; raise the error of a draft that fails."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: Exception | None) -> None:
        ended.set_result(None) if error is None else ended.set_exception(error)

    drafting = calls.drafts.begin(command, context, deliver, done)
    try:
        await ended
    finally:
        drafting.cancel()


async def until(condition: Callable[[], bool], *peers: Peer) -> None:
    """Wait for what a change of one of ``peers`` brings about."""
    async with asyncio.timeout(10):
        while not condition():
            waits = [asyncio.create_task(peer.changed.wait()) for peer in peers]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for peer, wait in zip(peers, waits, strict=True):
                wait.cancel()
                peer.changed.clear()


@dataclass(frozen=True, slots=True)
class Orchestrated:
    """What an orchestrator knows of its peers."""

    mesh: ReplicaPools
    targets: TargetRegistry


Connect = Callable[..., Awaitable[Orchestrated]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Starts fake peers, unless they run already, and connects an orchestrator's pools to them.

    Returns once each of them is ready or refused.
    """
    async with AsyncExitStack() as stack:

        async def connected(
            verifiers: Sequence[Verifier],
            drafters: Sequence[Drafter] = (),
            filters: Sequence[Filter] = (),
            holders: PrefixHolders | None = None,
        ) -> Orchestrated:
            for fake in (*verifiers, *drafters, *filters):
                await _started(fake, stack)
            targets = TargetRegistry()
            mesh = ReplicaPools(
                Pool("verifier", Verifier.service, _addresses(verifiers), targets.admit_verifier),
                Pool(
                    *("drafter", Drafter.service, _addresses(drafters), targets.admit_drafter),
                    dispensable=True,
                ),
                Pool(
                    *("confidence_service", Filter.service, _addresses(filters), None),
                    dispensable=True,
                ),
                holders=holders or PrefixHolders(),
            )
            targets.follow(mesh.verifiers, mesh.drafters)
            for pool in (mesh.drafters, mesh.verifiers, mesh.confidence):
                stack.push_async_callback(pool.close)
            peers = (*mesh.verifiers.peers, *mesh.drafters.peers, *mesh.confidence.peers)
            await until(lambda: all(peer.ready or peer.refusal for peer in peers), *peers)
            return Orchestrated(mesh, targets)

        yield connected


async def _started(fake: FakePeer, stack: AsyncExitStack) -> None:
    if fake.address.endswith(":0"):
        await fake.start()
        stack.push_async_callback(fake.die)


def _addresses(fakes: Sequence[FakePeer]) -> list[str]:
    return [fake.address for fake in fakes]


DEFAULTS = Defaults("speculative", lookahead=4)
Serve = Callable[..., Awaitable[generation_pb2_grpc.GenerationServiceStub]]
StoreOn = Callable[..., SessionStore]


@pytest.fixture
async def store_on() -> AsyncIterator[StoreOn]:
    """Opens session stores."""
    async with AsyncExitStack() as stack:

        def opened(url: str, **options: Any) -> SessionStore:
            store = SessionStore.from_url(as_documented(url), **options)
            stack.push_async_callback(store.aclose)
            return store

        yield opened


@pytest.fixture
async def serve(store_on: StoreOn) -> AsyncIterator[Serve]:
    """Serves GenerationService over a mesh and gives a client's stub of it.

    Asks for ``store_on`` so that its servers stop before the stores they write to.
    """
    async with AsyncExitStack() as stack:

        async def serving(
            behind: Orchestrated,
            store: SessionStore | None = None,
            guard: Guard | None = None,
            defaults: Defaults = DEFAULTS,
            options: Sequence[tuple[str, int]] = (),
        ) -> generation_pb2_grpc.GenerationServiceStub:
            prompts = PromptReader()
            stack.push_async_callback(prompts.close)
            servicer = GenerationServicer(behind.mesh, behind.targets, store, defaults, prompts)
            server = grpc.aio.server(interceptors=[CallInterceptor(guard=guard)])
            generation_pb2_grpc.add_GenerationServiceServicer_to_server(servicer, server)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            stack.push_async_callback(server.stop, None)
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options)
            stack.push_async_callback(channel.close)
            return generation_pb2_grpc.GenerationServiceStub(channel)

        yield serving
