"""The state that all connections of a server share: their limits and a read buffer."""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from http import HTTPStatus
from typing import Protocol

from specmesh.gateway.errors import ApiError, overloaded

READ_BYTES = 2**14
"""Bounds the work for one connection before the others get their turn: 16 KiB can hold thousands of
chunks, or hundreds of requests."""
IPV6_SITE_BITS = 64


class IdleConnection(Protocol):
    """A connection that waits for its client's next request."""

    def make_way(self) -> None:
        """Close it, and stop counting it immediately."""
        ...


class Connections:
    """Counts connections, in total and per address, and refuses those beyond the limits. At a limit
    the one that has been idle for longest makes way.

    ``stall_s`` is the longest time that a client may leave pending data unread.
    """

    def __init__(self, max_all: int, max_per_address: int, stall_s: float) -> None:
        self.stall_s = stall_s
        self.buffer = memoryview(bytearray(READ_BYTES))
        """The buffer of the one read in progress."""
        self._max_all = max_all
        self._max_per_address = max_per_address
        self._num_by_site = Counter[str]()
        self._idle: dict[IdleConnection, str] = {}
        """The sites of idle connections, those first that have been idle for longest."""

    def add(self, address: str) -> None:
        """Count a connection from ``address``. Raises ``ApiError`` 429 if a limit is reached."""
        site = site_of(address)
        if self._num_by_site[site] >= self._max_per_address and not self._make_room(site):
            raise overloaded("there are too many connections from this address")
        if self._num_by_site.total() >= self._max_all and not self._make_room():
            raise overloaded("there are too many connections")
        self._num_by_site[site] += 1

    def rests(self, connection: IdleConnection, address: str) -> None:
        """Note that ``connection`` from ``address`` waits for its next request."""
        self._idle[connection] = site_of(address)

    def wakes(self, connection: IdleConnection) -> None:
        """Note that it does so no longer."""
        self._idle.pop(connection, None)

    def _make_room(self, site: str | None = None) -> bool:
        """Close the connection, from ``site`` if given, that has been idle for longest; return
        whether there was one."""
        for connection, its_site in self._idle.items():
            if site in (None, its_site):
                connection.make_way()
                return True
        return False

    def remove(self, address: str) -> None:
        """Stop counting a connection from ``address``."""
        site = site_of(address)
        self._num_by_site[site] -= 1
        if not self._num_by_site[site]:
            del self._num_by_site[site]


def site_of(host: str) -> str:
    """Return the site that an address belongs to: of IPv6 its /64 network, else the address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:  # noqa: PLR2004
        return host
    return str(ipaddress.ip_network((address, IPV6_SITE_BITS), strict=False))


def error_response(error: ApiError) -> bytes:
    """Return a complete HTTP response for ``error``, after which the connection is closed."""
    body = json.dumps(error.body).encode()
    status = HTTPStatus(error.status)
    headers = {
        **error.headers,
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
    }
    lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
