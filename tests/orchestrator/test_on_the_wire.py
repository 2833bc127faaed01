"""A request has left before the driver does anything else: the next tokens wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Semaphore
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tests.orchestrator.model import VOCAB_SIZE
from tests.orchestrator.peers import Verifier

from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY
from specmesh.mesh.v1alpha1 import verifier_pb2, verifier_pb2_grpc
from specmesh.orchestrator.driver.mesh_driver import Driver
from specmesh.orchestrator.driver.stats import RequestStats
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.strategies.commands import Commit, Finish, StopReason, Verify
from specmesh.orchestrator.strategies.events import Verified

ROUNDS = 20


class Threaded(verifier_pb2_grpc.VerifierServiceServicer):
    """A replica with threads of its own: it goes on while the test's event loop stands still."""

    def __init__(self) -> None:
        self.arrived = Semaphore(0)

    def VerifyEach(self, request_iterator: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        for _ in request_iterator:
            self.arrived.release()
            response = verifier_pb2.VerifyResponse(
                next_token_id=7, next_token_kind=verifier_pb2.NEXT_TOKEN_KIND_BONUS
            )
            yield verifier_pb2.VerifyEachResponse(response=response)


@contextmanager
def serving(replica: Threaded) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(4))
    verifier_pb2_grpc.add_VerifierServiceServicer_to_server(replica, server)
    healths = health.HealthServicer()
    healths.set(Verifier.service, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healths, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


class Rounds:
    """One verification a round; the next leaves with what the last one brought."""

    explanation = ""

    def __init__(self, replica: Threaded) -> None:
        self._replica = replica

    def start(self, capacity):
        return [Verify(1, (), EMPTY)]

    def handle(self, event):
        if not isinstance(event, Verified):
            return []
        if event.task == 1:
            self._replica.arrived.acquire()  # so that those to come count
        if event.task == ROUNDS:
            return [Finish(StopReason.STOP)]
        return [Commit((7,), 0), Verify(event.task + 1, (), EMPTY)]


async def num_left_in_time(patience_s: float) -> int:
    """How many requests reach the replica while the loop stands still with the delivery."""
    replica, in_time = Threaded(), 0

    def deliver(commit: Commit) -> None:
        nonlocal in_time
        in_time += replica.arrived.acquire(timeout=patience_s)

    with serving(replica) as address:
        pool = Pool("verifier", Verifier.service, [address], admit=None)
        await pool.wait_ready()
        mesh = ReplicaPools(
            pool, Pool("drafter", "", [], None), Pool("confidence_service", "", [], None)
        )
        prefix, deadline = CommittedPrefix("s", (1, 2)), asyncio.get_running_loop().time() + 60
        calls = Calls(
            RequestContext(mesh, prefix, Sampling(), vocab_size=VOCAB_SIZE, deadline=deadline)
        )
        await Driver(Rounds(replica), calls, RequestStats(), deliver).drive()
        await pool.close()
    return in_time


async def test_a_request_is_on_the_wire_before_what_was_committed_is_delivered():
    assert await num_left_in_time(patience_s=10) == ROUNDS - 1
