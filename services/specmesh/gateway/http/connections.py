"""What all connections of a server share: their limits, and room to read to."""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from http import HTTPStatus

from specmesh.gateway.errors import ApiError, overloaded

READ_BYTES = 2**14
"""Bounds what is done for one connection before the others have their turn: 16 KiB can hold
thousands of chunks, or hundreds of requests."""
IPV6_SITE_BITS = 64


class Connections:
    """Counts the connections, those of each address too, and turns away what is too many.

    ``stall_s`` is how long a client may read nothing of what waits for it.
    """

    def __init__(self, max_all: int, max_per_address: int, stall_s: float) -> None:
        self.stall_s = stall_s
        self.buffer = memoryview(bytearray(READ_BYTES))
        """For one read at a time."""
        self._max_all = max_all
        self._max_per_address = max_per_address
        self._num_by_site = Counter[str]()

    def add(self, address: str) -> None:
        """Count a connection from ``address``. Raises ``ApiError`` if that is one too many."""
        site = site_of(address)
        if self._num_by_site.total() >= self._max_all:
            raise overloaded("there are too many connections")
        if self._num_by_site[site] >= self._max_per_address:
            raise overloaded("there are too many connections from this address")
        self._num_by_site[site] += 1

    def remove(self, address: str) -> None:
        """Count it no longer."""
        site = site_of(address)
        self._num_by_site[site] -= 1
        if not self._num_by_site[site]:
            del self._num_by_site[site]


def site_of(host: str) -> str:
    """Whom an address belongs to: IPv6 gives each site 2⁶⁴ of them."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:  # noqa: PLR2004
        return host
    return str(ipaddress.ip_network((address, IPV6_SITE_BITS), strict=False))


def error_response(error: ApiError) -> bytes:
    """A whole response, after which the connection is closed."""
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
