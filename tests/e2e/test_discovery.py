"""Replicas that come and go behind a name, while answers stream."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import dns.rdatatype
import grpc.aio
import pytest
from tests.e2e.processes import Process, Processes
from tests.e2e.test_tls import client, generate, num_tokens, tls
from tests.name_server import NameServer

from specmesh.serving.certs.folder import bearers, make
from specmesh.v1 import generation_pb2, generation_pb2_grpc

NAME = "replicas.test"
NUM_TOKENS = 60
NUM_STREAMS = 4
SIMULATED = ("--backend", "simulated", "--simulated-each-ms", "5")
BEYOND = "--plaintext-beyond-loopback"
GREEDY = generation_pb2.GenerateRequest()
GREEDY.tokens.ids.append(1)
GREEDY.sampling.temperature = 0
GREEDY.stopping.max_tokens = NUM_TOKENS
GREEDY.stopping.ignore_end_of_text = True


@pytest.fixture
def names() -> Iterator[NameServer]:
    with NameServer() as server:
        yield server


def replica(processes: Processes, role: str, number: int, port: int, *flags: str) -> Process:
    """A process at an address of its own, all at the same port, as pods are."""
    place = ("--host", f"127.0.0.{number}", "--port", str(port), "--name", f"{role}-{number}")
    return processes.service(role, *SIMULATED, *place, *flags)


async def served(process: Process) -> str:
    return await asyncio.to_thread(lambda: process.address)


async def logged(process: Process, event: str, **fields: str) -> None:
    await asyncio.to_thread(lambda: process.wait_event(event, **fields))


async def answer(channel: grpc.aio.Channel, strategy: str) -> Sequence[int]:
    request = generation_pb2.GenerateRequest()
    request.CopyFrom(GREEDY)
    request.speculation.strategy = strategy
    stub = generation_pb2_grpc.GenerationServiceStub(channel)
    events = [response.event async for response in stub.Generate(request, timeout=60)]
    assert events[-1].WhichOneof("kind") == "finished"
    return [token for event in events for token in event.chunk.token_ids]


async def test_no_answer_fails_or_changes_while_all_replicas_are_replaced(
    processes: Processes, names: NameServer
):
    """One is drained and one killed, each once its successor is there; then DNS fails."""
    first = processes.service("verifier", *SIMULATED, "--host", "127.0.0.2")
    port = int((await served(first)).rpartition(":")[2])
    drafter = replica(processes, "drafter", 12, port)
    names.set(NAME, [])
    names.set("drafters.test", ["127.0.0.12"])
    orchestrator = processes.service(
        *("orchestrator", "--verifiers", names.entry(NAME, port), BEYOND),
        *("--drafters", names.entry("drafters.test", port), "--resolve-seconds", "0.1"),
    )
    await logged(orchestrator, "name not resolved", reason="no address")
    names.set(NAME, ["127.0.0.2"])
    over = asyncio.Event()
    num_answers = 0
    async with grpc.aio.insecure_channel(await served(orchestrator)) as channel:
        expected = await answer(channel, "autoregressive")

        async def answers() -> None:
            nonlocal num_answers
            while not over.is_set():
                assert await answer(channel, "speculative") == expected
                num_answers += 1

        async with asyncio.timeout(60), asyncio.TaskGroup() as streams:
            for _ in range(NUM_STREAMS):
                streams.create_task(answers())
            last = first
            for number, end in ((3, signal.SIGTERM), (4, signal.SIGKILL)):
                new = replica(processes, "verifier", number, port)
                await served(new)
                names.set(NAME, [f"127.0.0.{number}", f"127.0.0.{number - 1}"])
                await logged(orchestrator, "peer", replica=f"verifier-{number}", serving=True)
                last.send(end)
                names.set(NAME, [f"127.0.0.{number}"])
                await logged(orchestrator, "replica dropped", peer=f"127.0.0.{number - 1}:{port}")
                last = new
            names.set("drafters.test", [])
            drafter.kill()
            await logged(orchestrator, "replica dropped", peer=f"127.0.0.12:{port}")
            names.fails |= {dns.rdatatype.A, dns.rdatatype.AAAA}
            await asyncio.to_thread(orchestrator.wait_text, "SERVFAIL")
            over.set()
    assert num_answers >= NUM_STREAMS
    assert len(expected) == NUM_TOKENS


async def test_replicas_behind_a_name_are_known_by_the_certificate_of_their_role(
    tmp_path: Path, processes: Processes, names: NameServer
):
    """The name is in no certificate, nor are the addresses that it stands for."""
    make(tmp_path, "t.test", bearers("t.test", (), ()), timedelta(days=1), force=False)
    verifier = processes.service(
        "verifier", *SIMULATED, "--host", "127.0.0.2", *tls(tmp_path, "verifier")
    )
    port = int((await served(verifier)).rpartition(":")[2])
    await served(replica(processes, "verifier", 3, port, *tls(tmp_path, "drafter")))
    names.set(NAME, ["127.0.0.2", "127.0.0.3"])
    orchestrator = processes.service(
        *("orchestrator", "--verifiers", names.entry(NAME, port)), *tls(tmp_path, "orchestrator")
    )
    away = await asyncio.to_thread(
        lambda: orchestrator.wait_event("peer away", peer=f"127.0.0.3:{port}")
    )
    assert "Hostname Verification Check failed" in away["reason"]
    await served(orchestrator)
    async with client(tmp_path, orchestrator) as channel:
        assert await num_tokens(aiter(generate(channel, 3))) == 3


def test_name_elsewhere_is_not_called_in_plain_text(processes: Processes, names: NameServer):
    refused = processes.service("orchestrator", "--verifiers", names.entry(NAME, 5))
    reason = refused.wait_event("cannot start")["reason"]
    assert f"{NAME}:5 is not loopback" in reason
    assert refused.wait_exit() == 1


def test_entry_that_is_no_name_is_refused_by_the_option(processes: Processes):
    refused = processes.service("orchestrator", "--verifiers", "dns:///verifier")
    assert "--verifiers" in refused.wait_text("must be dns:///HOST:PORT")
    assert refused.wait_exit() == 2
