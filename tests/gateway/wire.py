"""What a client may send that no library would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from tests.gateway.conftest import Gateway

SOON = 10


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: 0 for a connection that was closed without a word."""

    status: int
    head: bytes
    body: bytes

    @property
    def code(self) -> str:
        """The code of the error."""
        return str(json.loads(self.body)["error"]["code"])


@asynccontextmanager
async def connected(
    gateway: Gateway, address: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection from ``address``."""
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, port, local_addr=(address, 0))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def request(
    body: bytes, *headers: bytes, path: bytes = b"/v1/completions", length: bool = True
) -> bytes:
    """A POST of ``body``."""
    told = (b"content-length: %d" % len(body),) if length else ()
    lines = (b"POST " + path + b" HTTP/1.1", b"host: x", b"content-type: application/json")
    return b"\r\n".join((*lines, *told, *headers, b"", body))


def chunked(pieces: Iterator[bytes]) -> bytes:
    """``pieces`` as chunks of a body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"


async def answer(reader: asyncio.StreamReader) -> Answer:
    """The next response, if one comes."""
    try:
        async with asyncio.timeout(SOON):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            told = [each for each in lines if each.startswith(b"content-length:")]
            body = await reader.readexactly(int(told[0].partition(b":")[2])) if told else b""
    except (asyncio.IncompleteReadError, ConnectionError):
        return Answer(0, b"", b"")
    return Answer(int(head.split(b" ", 2)[1]), head, body)


async def sent(gateway: Gateway, data: bytes) -> Answer:
    """The response to ``data`` on a connection of its own."""
    async with connected(gateway) as (reader, writer):
        writer.write(data)
        return await answer(reader)


async def until(condition: Callable[[], object]) -> None:
    """Return once ``condition`` holds, which no event tells."""
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
