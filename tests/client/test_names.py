"""A name in DNS with several orchestrators behind it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import grpc.aio
from tests.client.conftest import FakeOrchestrator, refuses, whole_answer
from tests.name_server import NameServer

from specmesh.client import AsyncClient
from specmesh.v1.generation_pb2_grpc import add_GenerationServiceServicer_to_server

Code = grpc.StatusCode


class Counting(FakeOrchestrator):
    def __init__(self) -> None:
        super().__init__()
        self.num_asked = 0
        self._server = grpc.aio.server()
        add_GenerationServiceServicer_to_server(self, self._server)

    async def start(self, host: str, port: int = 0) -> int:
        port = self._server.add_insecure_port(f"{host}:{port}")
        await self._server.start()
        return port

    async def stop(self, grace_s: float | None = None) -> None:
        await self._server.stop(grace_s)

    async def ListModels(self, request, context):  # noqa: N802
        self.num_asked += 1
        return await super().ListModels(request, context)


async def test_calls_go_to_all_that_a_name_stands_for_and_to_who_comes_when_one_goes():
    first, second, third = fakes = Counting(), Counting(), Counting()
    async with AsyncExitStack() as stack:
        for fake in fakes:
            stack.push_async_callback(fake.stop)
        port = await first.start("127.0.0.2")
        await second.start("127.0.0.3", port)
        names = stack.enter_context(NameServer())
        names.set("mesh.test", ["127.0.0.2", "127.0.0.3"])
        async with AsyncClient(names.entry("mesh.test", port)) as client, asyncio.timeout(20):
            while not (first.num_asked and second.num_asked):
                await client.list_models()
            await third.start("127.0.0.4", port)
            names.set("mesh.test", ["127.0.0.3", "127.0.0.4"])
            await first.stop()
            while not third.num_asked:
                await client.list_models()
                await asyncio.sleep(0.01)


async def test_a_call_that_one_of_them_breaks_goes_to_another():
    breaks = refuses(grpc.StatusCode.UNAVAILABLE, "gone")
    fakes = [Counting(), Counting()]
    async with AsyncExitStack() as stack:
        for fake in fakes:
            stack.push_async_callback(fake.stop)
        port = await fakes[0].start("127.0.0.2")
        await fakes[1].start("127.0.0.3", port)
        names = stack.enter_context(NameServer())
        names.set("mesh.test", ["127.0.0.2", "127.0.0.3"])
        target = names.entry("mesh.test", port)
        async with AsyncClient(target, max_retries=0) as client, asyncio.timeout(20):
            while not all(fake.num_asked for fake in fakes):  # until it is connected to both
                await client.list_models()
            fakes[0].generate_scripts = fakes[1].generate_scripts = [breaks, whole_answer]
            assert (await client.generate("hello")).text
        assert [len(fake.requests) for fake in fakes] == [1, 1]


async def test_answers_that_share_calls_go_to_all_and_around_one_that_drains():
    staying, leaving = fakes = Counting(), Counting()
    async with AsyncExitStack() as stack:
        for fake in fakes:
            stack.push_async_callback(fake.stop)
        port = await staying.start("127.0.0.2")
        await leaving.start("127.0.0.3", port)
        names = stack.enter_context(NameServer())
        names.set("mesh.test", ["127.0.0.2", "127.0.0.3"])
        client = AsyncClient(names.entry("mesh.test", port), max_retries=0, share_calls=True)
        async with client, asyncio.timeout(20):
            while not all(fake.num_asked for fake in fakes):  # until it is connected to both
                await client.list_models()
            for fake in fakes:
                fake.generate_scripts = [whole_answer] * 40
            await asyncio.gather(*(client.generate(f"{n}") for n in range(40)))
            assert [len(fake.requests) for fake in fakes] == [20, 20]
            leaving.generate_scripts = [refuses(Code.UNAVAILABLE, "going", "DRAINING")] * 40
            stopping = asyncio.create_task(leaving.stop(5))
            staying.generate_scripts = [whole_answer] * 40
            for number in range(20):
                await client.generate(f"{number}")
            assert len(leaving.requests) <= 21
            await client.aclose()
            await stopping
