"""Tells hosts that only this machine can reach."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a port on ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
