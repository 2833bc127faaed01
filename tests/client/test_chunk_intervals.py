"""A client lets tokens wait for others where nobody reads single chunks, or where it says so."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.conftest import FakeOrchestrator, breaks_after, rest_of_answer, whole_answer

from specmesh.client import AsyncClient, Client, SpecmeshError

BOTH_WAYS = True

INTERVAL = "specmesh-chunk-interval-ms"


async def read(client: AsyncClient, **options: object) -> None:
    async for _ in client.generate("hello", **options):
        pass


async def awaited(client: AsyncClient, **options: object) -> None:
    await client.generate("hello", **options)


async def completed(client: AsyncClient, **options: object) -> None:
    await client.complete("hello", **options)


async def batched(client: AsyncClient, **options: object) -> None:
    await client.generate_many(["hello"], **options)


@pytest.mark.parametrize(
    ("ask", "options", "expected"),
    [
        (read, {}, None),
        (read, {"chunk_interval_s": 0.05}, "50"),
        (awaited, {}, "250"),
        (completed, {}, "250"),
        (batched, {}, "250"),
        (completed, {"chunk_interval_s": 0.5}, "500"),
        (completed, {"chunk_interval_s": 0}, None),
    ],
)
async def test_the_interval_is_that_of_the_reader(serve, ask, options, expected):
    fake = await serve(FakeOrchestrator([whole_answer]))
    async with AsyncClient(fake.address) as client:
        await ask(client, **options)
    assert [each.get(INTERVAL) for each in fake.metadata] == [expected]


@pytest.mark.parametrize(("is_whole", "expected"), [(False, None), (True, "250")])
async def test_blocking_streams_have_the_same(serve, is_whole, expected):
    fake = await serve(FakeOrchestrator([whole_answer]))

    def ask() -> None:
        with Client(fake.address) as client, client.generate("hello") as stream:
            if is_whole:
                assert stream.complete().token_ids
            else:
                list(stream)

    await asyncio.to_thread(ask)
    assert [each.get(INTERVAL) for each in fake.metadata] == [expected]


async def test_a_resumed_stream_has_that_of_its_reader(serve):
    fake = await serve(FakeOrchestrator([breaks_after(4)], [rest_of_answer(4)]))
    async with AsyncClient(fake.address, max_resumes=0) as client:
        with pytest.raises(SpecmeshError) as broken:
            await read(client)
        async for _ in client.resume(broken.value.session, chunk_interval_s=0.1):
            pass
    assert [each.get(INTERVAL) for each in fake.metadata] == [None, "100"]


async def test_a_resumed_answer_has_the_same(serve):
    fake = await serve(FakeOrchestrator([breaks_after(4)], [rest_of_answer(4)]))
    async with AsyncClient(fake.address) as client:
        await client.complete("hello")
    assert [each[INTERVAL] for each in fake.metadata] == ["250", "250"]
