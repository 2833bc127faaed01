"""Links as a real process, with an echo behind them."""

import asyncio
import sys
from contextlib import asynccontextmanager

import pytest

from specmesh.bench.chaos.links import FAIR, Links
from specmesh.bench.chaos.proxy import Weather
from specmesh.cli.local.logs import serving_address
from specmesh.cli.local.process import Process, ProcessSpec

SILENCE_S = 0.2
TIMEOUT_S = 10.0


@asynccontextmanager
async def echo_behind_a_link(tmp_path):
    async def echo(reader, writer):
        while data := await reader.read(100):
            heard.append(data)
            writer.write(data)
        writer.close()

    heard = []
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    command = (sys.executable, "-m", "specmesh.bench.chaos.proxy")
    spec = ProcessSpec(name="proxy", command=command, ready=serving_address)
    process = await Process.start(spec, tmp_path, timeout_s=60)
    links = await Links.connect(process.address)
    try:
        port = server.sockets[0].getsockname()[1]
        yield links, await links.open("a>b", f"127.0.0.1:{port}"), heard
    finally:
        links.close()
        await process.stop(0)
        server.close()


async def refused(address: str) -> None:
    """The reset may come before the connection is known to stand, or after."""
    reader, _ = await connect(address)
    await read(reader, 1)


async def connect(address):
    host, port = address.split(":")
    return await asyncio.open_connection(host, int(port))


async def silent(reader):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), SILENCE_S)


async def read(reader, count):
    return await asyncio.wait_for(reader.readexactly(count), TIMEOUT_S)


async def test_a_link_passes_holds_deafens_cuts_and_refuses(tmp_path):
    async with echo_behind_a_link(tmp_path) as (links, address, heard):
        reader, writer = await connect(address)
        writer.write(b"hello")
        assert await read(reader, 5) == b"hello"

        await links.set("a>b", Weather(requests_pass=False, replies_pass=False))
        writer.write(b"held")
        await silent(reader)
        assert heard == [b"hello"]
        await links.set("a>b", FAIR)
        assert await read(reader, 4) == b"held"

        await links.set("a>b", Weather(replies_pass=False))
        writer.write(b"unheard")
        await silent(reader)
        assert heard == [b"hello", b"held", b"unheard"]
        await links.cut("a>b")
        with pytest.raises(ConnectionError):
            await read(reader, 7)

        await links.set("a>b", Weather(refuses=True))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await refused(address)

        await links.set("a>b", Weather(delay_s=0.1, loss=1.0))
        reader, writer = await connect(address)
        loop = asyncio.get_running_loop()
        began = loop.time()
        writer.write(b"late")
        assert await read(reader, 4) == b"late"
        assert loop.time() - began > 2 * (0.1 + 0.2) - 0.05
        writer.close()
