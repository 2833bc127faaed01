"""A replica whose engine is lost says so and ends, so that it is started again."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.e2e.processes import Process, launch
from tests.forks import surroundings
from tests.inference.breaking_verifier import DIES, HANGS

from specmesh.mesh.v1alpha1 import verifier_pb2, verifier_pb2_grpc
from specmesh.serving.errors import error_info
from specmesh.serving.rpc.health import LIVENESS

PATIENCE_S = 30
SCRIPT = Path(__file__).parent / "breaking_verifier.py"


@pytest.mark.parametrize(
    ("token", "reason"),
    [(DIES, "the engine's thread died"), (HANGS, "a forward pass does not end")],
)
async def test_replica_whose_engine_is_lost_is_not_serving_and_ends(token, reason):
    flags = ("--model", "breaking", "--port", "0", "--max-forward-seconds", "0.5")
    process = Process("breaking", launch([sys.executable, str(SCRIPT), *flags], surroundings()))
    try:
        async with grpc.aio.insecure_channel(process.address) as channel:
            watches = [
                health_pb2_grpc.HealthStub(channel).Watch(
                    health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE_S
                )
                for name in ("specmesh.mesh.v1alpha1.VerifierService", LIVENESS)
            ]
            before = [(await watch.read()).status for watch in watches]
            stub = verifier_pb2_grpc.VerifierServiceStub(channel)
            bad, waiting = (stub.Verify(message(each), timeout=PATIENCE_S) for each in (token, 3))
            for call in (bad, waiting) if token == HANGS else (bad,):
                with pytest.raises(grpc.aio.AioRpcError) as failure:
                    await call
                assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
                assert error_info(failure.value).reason == "ENGINE_BROKEN"
            after = [(await watch.read()).status for watch in watches]
        said = health_pb2.HealthCheckResponse
        assert before == [said.SERVING] * 2
        assert after == [said.NOT_SERVING] * 2
        assert reason in process.wait_event("broken")["reason"]
        assert await asyncio.to_thread(process.wait_exit) == 1
    finally:
        process.kill()


def message(token: int) -> verifier_pb2.VerifyRequest:
    return verifier_pb2.VerifyRequest(prefix={"token_ids": [token]}, sampling={"temperature": 0})
