"""Who takes keepalive pings for an attack is pinged less from then on."""

from __future__ import annotations

import asyncio
import logging

from tests.client.conftest import FakeOrchestrator, chunks, finished, started

from specmesh.client import AsyncClient
from specmesh.client.connections import channels


async def test_an_answer_goes_on_behind_a_server_that_refuses_pings(serve, monkeypatch, caplog):
    """gRPC as it comes cuts off who pings more than every five minutes."""
    monkeypatch.setattr(channels, "_PING_MS", 200)
    caplog.set_level(logging.WARNING, "specmesh.client")

    async def silent(_):
        yield started()
        for event in chunks(0, 4):
            yield event
        await asyncio.Event().wait()

    async def rest(_):
        yield started(2)
        await asyncio.sleep(0.5)
        for event in chunks(4, 12):
            yield event
        yield finished()

    fake = await serve(FakeOrchestrator([silent], [rest]))
    async with AsyncClient(fake.address) as client:
        result = await client.generate("hello", timeout_s=30)
    assert result.num_resumes == 1
    (told,) = [each for each in caplog.records if "keepalive" in each.message]
    assert fake.address in told.message
