"""A client of the proxy, which opens and breaks links."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any

from specmesh.bench.chaos.proxy import Weather

FAIR = Weather()


class Links:
    """A connection to a proxy; each method returns once the proxy has obeyed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = asyncio.Lock()

    @classmethod
    async def connect(cls, address: str) -> Links:
        """Connect to the proxy that takes orders at ``address``."""
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def open(self, name: str, upstream: str) -> str:
        """Open a link to ``upstream`` (host:port or unix:PATH); return the address on which it
        listens."""
        return str((await self._order({"open": name, "upstream": upstream}))["address"])

    async def cut(self, name: str) -> None:
        """Reset the link's connections."""
        await self._order({"cut": name})

    async def set(self, name: str, weather: Weather) -> None:
        """Change how the link behaves."""
        await self._order({"weather": name, **asdict(weather)})

    async def ping(self) -> None:
        """Wait until the proxy answers."""
        await self._order({})

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        async with self._lock:
            self._writer.write(json.dumps(order).encode() + b"\n")
            answer: dict[str, Any] = json.loads(await self._reader.readline())
            return answer
