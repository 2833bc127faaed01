"""Checks that plain text stays on this machine unless an operator allows more."""

from __future__ import annotations

from collections.abc import Iterable

from specmesh.serving.loopback import is_loopback, is_loopback_address
from specmesh.serving.settings import ProcessSettings
from specmesh.serving.startup import CannotStart


def check_plaintext(settings: ProcessSettings) -> None:
    """Raise ``CannotStart`` for a port in plain text beyond loopback that no operator allowed."""
    if not (is_loopback(settings.host) or settings.plaintext_beyond_loopback):
        raise CannotStart(
            f"{settings.host} is not loopback: give --tls-cert and --tls-key, or "
            "--plaintext-beyond-loopback to go without TLS"
        )


def check_plaintext_calls(settings: ProcessSettings, addresses: Iterable[str], ca: str) -> None:
    """Raise ``CannotStart`` if calls to ``addresses``, as gRPC takes them, would leave this machine
    in plain text that no operator allowed. ``ca`` is the option that enables TLS for them."""
    if settings.plaintext_beyond_loopback:
        return
    for address in addresses:
        if not is_loopback_address(address):
            raise CannotStart(
                f"{address} is not loopback: give {ca}, or --plaintext-beyond-loopback to go "
                "without TLS"
            )
