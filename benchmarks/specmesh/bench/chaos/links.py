"""Giving orders to the proxy."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any

from specmesh.bench.chaos.proxy import Weather

FAIR = Weather()


class Links:
    """The links of a proxy that listens for orders at ``address``; open until ``close``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = asyncio.Lock()

    @classmethod
    async def connect(cls, address: str) -> Links:
        """Reach the proxy."""
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def open(self, name: str, upstream: str) -> str:
        """A link to ``upstream`` (host:port, or unix:PATH); returns where it listens."""
        return str((await self._order({"open": name, "upstream": upstream}))["address"])

    async def cut(self, name: str) -> None:
        """Reset the link's connections."""
        await self._order({"cut": name})

    async def set(self, name: str, weather: Weather) -> None:
        """From now on."""
        await self._order({"weather": name, **asdict(weather)})

    async def ping(self) -> None:
        """Return when the proxy has got round to answer."""
        await self._order({})

    def close(self) -> None:
        """Give no more orders."""
        self._writer.close()

    async def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        async with self._lock:
            self._writer.write(json.dumps(order).encode() + b"\n")
            answer: dict[str, Any] = json.loads(await self._reader.readline())
            return answer
