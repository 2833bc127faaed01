"""Tells IP addresses from names, and hosts and addresses that only this machine can reach."""

from __future__ import annotations

import re
from ipaddress import ip_address

_SCHEME = re.compile("^(dns:(///)?|ipv[46]:)")
"""The prefix of a host that this machine looks up, unlike that of ``dns://SERVER/HOST``."""


def is_ip(host: str) -> bool:
    """Return True if ``host`` is an IP address without brackets, not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a port on ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_loopback_address(address: str) -> bool:
    """Return True if ``address``, as gRPC takes it, is on this machine. The SDK has the same rule,
    and shares no code with servers."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    return is_loopback(_SCHEME.sub("", address).rpartition(":")[0].strip("[]"))
