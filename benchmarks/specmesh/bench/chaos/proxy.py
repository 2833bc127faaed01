"""A TCP proxy whose links can be cut, blocked and slowed while it runs.

It is a separate program, ``python -m specmesh.bench.chaos.proxy``. It takes orders, one JSON object
per line, and answers each with one:

    {"open": LINK, "upstream": "host:port" or "unix:PATH"}   open it; answers {"address": ...}
    {"cut": LINK}                                            reset its connections
    {"weather": LINK, ...fields of Weather}                  change how it behaves

Data that a blocked link holds back is sent when the link is open again, as TCP would do.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

RETRANSMISSION_S = 0.2
"""Delay of a lost packet: Linux waits at least this long before it retransmits."""

_RESET = struct.pack("ii", 1, 0)
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Weather:
    """The behaviour of a link."""

    requests_pass: bool = True
    replies_pass: bool = True
    refuses: bool = False
    """True if new connections are reset."""
    delay_s: float = 0.0
    loss: float = 0.0
    """Share of the pieces of data that are retransmitted."""


Pair = tuple[asyncio.StreamWriter, asyncio.StreamWriter]


class Link:
    """A link that listens on its own port and forwards each connection to one that ``connect``
    makes."""

    def __init__(
        self, connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
    ) -> None:
        self._connect = connect
        self._weather = Weather()
        self._changed = asyncio.Event()
        self._pairs: set[Pair] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> str:
        """Listen, and return the address, host:port."""
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def set(self, weather: Weather) -> None:
        """Change how the link behaves."""
        self._weather = weather
        self._changed.set()
        self._changed = asyncio.Event()

    def cut(self) -> None:
        """Reset all connections."""
        for pair in list(self._pairs):
            for writer in pair:
                _reset(writer)

    async def close(self) -> None:
        """Stop listening, and reset all connections."""
        assert self._server is not None
        self._server.close()
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._weather.refuses:
            _reset(writer)
            return
        try:
            far_reader, far_writer = await self._connect()
        except OSError:
            _reset(writer)
            return
        pair = (writer, far_writer)
        self._pairs.add(pair)
        requests = asyncio.create_task(self._pump(reader, far_writer, "requests_pass"))
        replies = asyncio.create_task(self._pump(far_reader, writer, "replies_pass"))
        try:
            await asyncio.wait({requests, replies}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (requests, replies):
                task.cancel()
            await asyncio.gather(requests, replies, return_exceptions=True)
            self._pairs.discard(pair)
            for end in pair:
                end.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: str
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(_PIECE_BYTES):
                if self._weather.loss and random.random() < self._weather.loss:  # noqa: S311
                    await asyncio.sleep(RETRANSMISSION_S)
                if self._weather.delay_s:
                    await asyncio.sleep(self._weather.delay_s)
                while not getattr(self._weather, passes):
                    await self._changed.wait()
                writer.write(data)
                await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


class Proxy:
    """All links, and the orders that change them."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}

    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take orders until the connection ends."""
        while line := await reader.readline():
            answer = await self._obey(json.loads(line))
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _obey(self, order: Mapping[str, Any]) -> Mapping[str, str]:
        match order:
            case {"open": str(name), "upstream": str(upstream)}:
                self._links[name] = link = Link(lambda: _connect(upstream))
                return {"address": await link.open()}
            case {"cut": str(name)}:
                self._links[name].cut()
            case {"weather": str(name), **fields}:
                self._links[name].set(Weather(**fields))
        return {}


async def _connect(upstream: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    kind, _, rest = upstream.partition(":")
    if kind == "unix":
        return await asyncio.open_unix_connection(rest)
    return await asyncio.open_connection(kind, int(rest))


async def main() -> None:
    """Serve until the process is ended."""
    server = await asyncio.start_server(Proxy().listen, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    sys.stdout.write(json.dumps({"event": "serving", "address": f"{host}:{port}"}) + "\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
