"""The list of replicas of a role in the settings: addresses, and DNS names that are followed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from specmesh.serving.loopback import is_ip

MAX_PORT = 65535
DNS_PORT = 53
_WITHOUT_PORT = ("unix:", "unix-abstract:", "xds:")
"""The prefixes of sockets on this machine, and of names that a control plane resolves."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Name:
    """A name that DNS resolves to the addresses of replicas, all of which listen on ``port``."""

    host: str
    port: int
    server: tuple[str, int] | None = None
    """IP address and port of the name server to query; None uses those of /etc/resolv.conf."""

    def __str__(self) -> str:
        server = "" if self.server is None else join(*self.server)
        return f"dns://{server}/{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Entries:
    """A parsed list of replicas."""

    addresses: tuple[str, ...] = ()
    """gRPC targets, each of which is one replica and stays forever."""
    names: tuple[Name, ...] = ()


def read_entries(listed: str) -> Entries:
    """Parse a comma-separated list. As in gRPC, an entry ``dns:[//SERVER/]HOST:PORT`` is a name
    with any number of replicas behind it.

    Raises ``ValueError`` for an entry that can't be called or looked up.
    """
    entries = [each.strip() for each in listed.split(",")]
    read = [_read(each) for each in entries if each]
    return Entries(
        _unique(each for each in read if isinstance(each, str)),
        _unique(each for each in read if isinstance(each, Name)),
    )


def join(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _read(entry: str) -> str | Name:
    scheme, colon, rest = entry.partition(":")
    if not colon or scheme.lower() != "dns":
        return _checked(entry)
    server = ""
    if rest.startswith("//"):
        server, _, rest = rest[2:].partition("/")
    host, _, port = rest.rpartition(":")
    if not host or not _is_port(port):
        raise ValueError(f"{entry!r} must be dns:///HOST:PORT")
    if is_ip(host.strip("[]")):
        return rest
    return Name(host, int(port), _read_server(server, entry) if server else None)


def _checked(address: str) -> str:
    """Return ``address``. gRPC would take any text, and a port modulo 65536."""
    if address.startswith(_WITHOUT_PORT):
        return address
    host, _, port = address.rpartition(":")
    # "::1" is a whole address of IPv6, and its 1 no port.
    if not host or "/" in host or is_ip(address) or not _is_port(port):
        raise ValueError(f"{address!r} must be HOST:PORT with a port from 1 to {MAX_PORT}")
    return address


def _read_server(server: str, entry: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//[{server}]" if is_ip(server) and ":" in server else f"//{server}")
        host, port = parts.hostname or "", parts.port or DNS_PORT
    except ValueError:
        host, port = "", 0
    if not is_ip(host):
        raise ValueError(f"{entry!r} must name its DNS server by IP address[:port]")
    return host, port


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text) <= MAX_PORT


def _unique(items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(dict.fromkeys(items))
