"""SIGTERM: running answers end well, new calls go elsewhere, the process ends with status 0."""

import asyncio
import signal
from contextlib import suppress

import pytest
from tests.e2e.answers import LONG, answer, disturbed, said

from specmesh.client import AsyncClient, Cancelled, Unavailable


async def no_connection_is_taken(address: str) -> None:
    """Return once the port is closed."""
    host, _, port = address.rpartition(":")
    with suppress(ConnectionRefusedError, ConnectionResetError):
        while True:
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            await asyncio.sleep(0.01)


async def test_a_drained_orchestrator_ends_its_answers_and_refuses_others(
    mesh, processes, client, prompts
):
    orchestrator = processes.orchestrator(
        mesh.verifiers, [mesh.drafter], "--redis-url", mesh.redis_url
    )
    undisturbed = await answer(client, prompts[0], **LONG)

    async with (
        AsyncClient(orchestrator.address) as own,
        AsyncClient(orchestrator.address, max_retries=0) as late,
    ):

        async def drain():
            orchestrator.send(signal.SIGTERM)
            await asyncio.to_thread(orchestrator.wait_event, "draining")
            await no_connection_is_taken(orchestrator.address)
            # Cancelled: gRPC drops a call that reaches it by a connection from before.
            with pytest.raises((Unavailable, Cancelled)):
                await late.generate("def late(")

        result = await disturbed(own, prompts[0], drain, **LONG)
    assert said(result) == said(undisturbed)
    assert result.num_resumes == 0
    assert await asyncio.to_thread(orchestrator.wait_exit) == 0


async def test_an_orchestrator_that_leaves_still_answers_those_who_have_not_noticed(
    mesh, processes
):
    flags = ("--drain-delay-seconds", "1", "--redis-url", mesh.redis_url)
    orchestrator = processes.orchestrator(mesh.verifiers, [mesh.drafter], *flags)
    async with (
        AsyncClient(orchestrator.address, max_retries=0) as known,
        AsyncClient(orchestrator.address, max_retries=0) as new,
    ):
        await answer(known, "def known(", max_tokens=4)
        orchestrator.send(signal.SIGTERM)
        await asyncio.to_thread(orchestrator.wait_event, "leaving")
        for client in (known, new):
            assert (await answer(client, "def late(", max_tokens=4)).num_resumes == 0
    assert await asyncio.to_thread(orchestrator.wait_exit) == 0


async def test_a_drained_verifier_leaves_its_work_to_another(mesh, processes, client, prompts):
    flags = ("--redis-url", mesh.redis_url)
    drained = processes.verifier(*flags)
    orchestrator = processes.orchestrator([drained, mesh.verifiers[1]], [mesh.drafter], *flags)
    undisturbed = await answer(client, prompts[1], **LONG)

    async def drain():
        drained.send(signal.SIGTERM)
        await asyncio.to_thread(drained.wait_event, "draining")

    async with AsyncClient(orchestrator.address) as own:
        result = await disturbed(own, prompts[1], drain, **LONG)
        (served,) = await own.list_models()
    assert said(result) == said(undisturbed)
    assert served.num_verifiers == 1
    assert await asyncio.to_thread(drained.wait_exit) == 0
