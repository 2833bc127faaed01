"""The caller on whose behalf a gateway calls.

A gateway that requires tokens authenticates its callers, but orchestrators see only the gateway. So
it names the caller in each call's metadata, and everything that depends on the caller (limits,
sessions, the salt of prefixes, logs) uses that name.
"""

from __future__ import annotations

from collections.abc import Iterable

from specmesh.decoding.errors import InvalidField

CALLER = "specmesh-caller-bin"
"""The metadata key; its value is UTF-8."""
MAX_CALLER_BYTES = 2048
"""Room for a JSON Web Token's issuer and subject."""


def named_caller(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """Return the caller that ``metadata`` names, or None. Raises ``InvalidField``."""
    given = [value for key, value in metadata if key == CALLER]
    if not given:
        return None
    if len(given) > 1:
        raise InvalidField(CALLER, "must be given at most once")
    value = given[0]
    if not 1 <= len(value) <= MAX_CALLER_BYTES:
        raise InvalidField(CALLER, f"must have 1 to {MAX_CALLER_BYTES} bytes, not {len(value)}")
    try:
        return value if isinstance(value, str) else value.decode()
    except UnicodeDecodeError:
        raise InvalidField(CALLER, "must be UTF-8") from None


def identity_behind(gateway: str, caller: str) -> str:
    """Return the identity of ``caller`` behind the gateway with the identity ``gateway``.

    Each gateway has its own namespace: its callers are never taken for those of another gateway, or
    for a direct caller of the orchestrator. Therefore the first part has no ``|``: the names of
    tokens and certificates have none, and that in a JSON Web Token's identity is escaped.
    """
    return f"{gateway.replace('%', '%25').replace('|', '%7C')}|{caller}" if gateway else caller
