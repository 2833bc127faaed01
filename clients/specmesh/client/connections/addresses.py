"""Addresses of orchestrators, as users write them and as gRPC takes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from ipaddress import IPv6Address

from specmesh.client.connections.arguments import check_kind

DEFAULT_PORT = 50051
"""The default port of a target; gRPC's own default would be 443."""
DEFAULT_TARGET = f"127.0.0.1:{DEFAULT_PORT}"
"""The default address of `specmesh up`."""

_HIGHEST_PORT = 65_535
_TAKEN_AS_THEY_ARE = ("unix:", "unix-abstract:", "vsock:", "ipv4:", "ipv6:", "xds:")
"""Schemes of gRPC whose addresses have a form of their own."""


def targets_or_default(targets: Sequence[str]) -> tuple[str, ...]:
    """Return ``targets``, or if empty the addresses in the environment variable SPECMESH_TARGET,
    separated by spaces, or `DEFAULT_TARGET`.

    Raises TypeError or ValueError for one that is not an address.
    """
    for target in targets:
        check_kind("a target", target, str, "a string, one argument for each")
    chosen = targets or os.environ.get("SPECMESH_TARGET", "").split() or (DEFAULT_TARGET,)
    return tuple(map(with_port, chosen))


def with_port(target: str) -> str:
    """Return ``target`` (``host``, ``host:port`` or an address with one of gRPC's schemes) with a
    port.

    Raises ValueError if it is a URL or several addresses, has no host, or has an invalid port.
    """
    if target.startswith(_TAKEN_AS_THEY_ARE):
        return target
    scheme, separator, rest = target.partition("://")
    if separator and scheme != "dns":
        raise ValueError(
            f"target {target!r} is a URL; an orchestrator's address is host:port, such as "
            f"{(rest.partition('/')[0] or 'localhost').partition(':')[0]}:{DEFAULT_PORT}"
        )
    if is_name(target):
        start, slash, name = target.rpartition("/")
        if not slash:
            start, _, name = target.partition(":")
            return f"{start}:{_with_port(name, target)}"
        return f"{start}/{_with_port(name, target)}"
    return _with_port(target, target)


def is_name(target: str) -> bool:
    """Return whether several orchestrators may be behind ``target``, which gRPC resolves again and
    again."""
    return target.startswith("dns:")


def _with_port(name: str, target: str) -> str:
    if "," in name:
        raise ValueError(
            f"target {target!r} has a comma; pass several targets one by one, or separate them by "
            "spaces in SPECMESH_TARGET"
        )
    host, colon, port = name.rpartition(":")
    if not colon or name.endswith("]") or _is_ipv6(name):
        host, port = name, str(DEFAULT_PORT)
    if not host or host != host.strip():
        raise ValueError(f"target {target!r} has no host; an address is host:port")
    if not port.isdecimal() or not 0 < int(port) <= _HIGHEST_PORT:
        raise ValueError(f"target {target!r}: port {port!r} is not from 1 to {_HIGHEST_PORT}")
    return f"[{host}]:{port}" if _is_ipv6(host) else f"{host}:{port}"


def _is_ipv6(host: str) -> bool:
    """Return whether ``host`` is an IPv6 address without the brackets that a port needs."""
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True
