"""A mesh whose processes know each other by their certificates."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.e2e.processes import Process, Processes

from specmesh.serving.certs.folder import bearers, make, renew
from specmesh.v1 import generation_pb2, generation_pb2_grpc

DAY = timedelta(days=1)
NUM_TOKENS = 150
SLOW = ("--backend", "simulated", "--simulated-each-ms", "20")
FAST = ("--backend", "simulated")


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    make(tmp_path, "test.internal", bearers("test.internal", (), ()), DAY, force=False)
    return tmp_path


@pytest.fixture
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


def tls(certs: Path, role: str) -> list[str]:
    paths = {"cert": f"{role}.pem", "key": f"{role}-key.pem", "ca": "ca.pem"}
    return [part for kind, name in paths.items() for part in (f"--tls-{kind}", str(certs / name))]


def client(certs: Path, orchestrator: Process) -> grpc.aio.Channel:
    pem = [(certs / f"{name}.pem").read_bytes() for name in ("ca", "client-key", "client")]
    options = [("grpc.use_local_subchannel_pool", 1)]
    credentials = grpc.ssl_channel_credentials(*pem)
    return grpc.aio.secure_channel(orchestrator.address, credentials, options)


def generate(channel: grpc.aio.Channel, max_tokens: int, strategy: str = "autoregressive") -> Any:
    request = generation_pb2.GenerateRequest()
    request.tokens.ids.append(1)
    request.stopping.max_tokens = max_tokens
    request.stopping.ignore_end_of_text = True
    request.speculation.strategy = strategy
    return generation_pb2_grpc.GenerationServiceStub(channel).Generate(request, timeout=60)


async def num_tokens(rest: Any) -> int:
    """How many tokens the rest of a stream has, whose end must come."""
    events = [response.event async for response in rest]
    assert events[-1].WhichOneof("kind") == "finished"
    return sum(len(event.chunk.token_ids) for event in events)


async def test_no_stream_is_lost_when_all_is_replaced_and_replicas_come_back_under_another_ca(
    certs: Path, processes: Processes
):
    first = processes.service("verifier", *SLOW, *tls(certs, "verifier"))
    second = processes.service("verifier", *SLOW, *tls(certs, "verifier"))
    address = second.address
    orchestrator = processes.orchestrator([first, second], [], *tls(certs, "orchestrator"))
    async with client(certs, orchestrator) as channel:
        stream = generate(channel, NUM_TOKENS)
        events = aiter(stream)
        head = 0
        while head < NUM_TOKENS // 10:
            head += len((await anext(events)).event.chunk.token_ids)
        # A new CA: who holds on to the old files can neither believe nor be believed.
        make(certs, "test.internal", bearers("test.internal", (), ()), DAY, force=True)
        second.kill()
        again = processes.service(
            "verifier", *SLOW, *tls(certs, "verifier"), "--port", address.rpartition(":")[2]
        )
        assert again.address == address
        first.kill()
        assert head + await num_tokens(events) == NUM_TOKENS
    async with client(certs, orchestrator) as channel:
        assert await num_tokens(aiter(generate(channel, 3))) == 3


async def test_every_role_does_its_part_over_mtls(certs: Path, processes: Processes):
    verifier = processes.service("verifier", *FAST, *tls(certs, "verifier"))
    drafter = processes.service("drafter", *FAST, *tls(certs, "drafter"))
    confidence = processes.service("confidence", "--threshold=-99", *tls(certs, "confidence"))
    orchestrator = processes.orchestrator(
        [verifier], [drafter], *tls(certs, "orchestrator"), confidence=[confidence]
    )
    async with client(certs, orchestrator) as channel:
        for strategy in ("speculative", "filter"):
            *_, last = [each.event async for each in generate(channel, 20, strategy)]
            assert last.finished.stats.num_output_tokens == 20
            assert last.finished.stats.num_drafted_tokens > 0
    assert last.finished.stats.num_unchecked_tokens > 0


async def test_a_drafter_cannot_pose_as_a_verifier(certs: Path, processes: Processes):
    impostor = processes.service("verifier", *FAST, *tls(certs, "drafter"))
    orchestrator = processes.orchestrator([impostor], [], *tls(certs, "orchestrator"))
    away = await asyncio.to_thread(orchestrator.wait_event, "peer away")
    assert "Hostname Verification Check failed" in away["reason"]
    assert "serving" not in orchestrator.output.split('"')


async def test_a_verifier_is_not_for_clients(certs: Path, processes: Processes):
    verifier = processes.service("verifier", *FAST, *tls(certs, "verifier"))
    renew(certs, DAY)
    async with client(certs, verifier) as channel:
        call = channel.unary_unary("/specmesh.mesh.v1alpha1.VerifierService/Verify")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(b"", timeout=10)
    assert raised.value.code() == grpc.StatusCode.PERMISSION_DENIED
    verifier.send(signal.SIGTERM)
    assert await asyncio.to_thread(verifier.wait_exit) == 0
