"""For whom a gateway calls.

A gateway that asks for tokens knows its callers, and orchestrators see the gateway alone. So it
names the caller in each call's metadata, and what depends on who calls (limits, sessions, the salt
of prefixes, logs) follows that name.
"""

from __future__ import annotations

from collections.abc import Iterable

from specmesh.decoding.errors import InvalidField

CALLER = "specmesh-caller-bin"
"""The key of the metadata; the value is UTF-8."""
MAX_CALLER_BYTES = 2048
"""Room for a JSON Web Token's issuer and subject."""


def named_caller(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """The caller that ``metadata`` names, None if it names none. Raises ``InvalidField``."""
    given = [value for key, value in metadata if key == CALLER]
    if not given:
        return None
    if len(given) > 1:
        raise InvalidField(CALLER, "must be there once at most")
    value = given[0]
    if not 1 <= len(value) <= MAX_CALLER_BYTES:
        raise InvalidField(CALLER, f"must have 1 to {MAX_CALLER_BYTES} bytes, not {len(value)}")
    try:
        return value if isinstance(value, str) else value.decode()
    except UnicodeDecodeError:
        raise InvalidField(CALLER, "must be UTF-8") from None


def identity_behind(gateway: str, caller: str) -> str:
    """The identity of ``caller``, as the gateway with the identity ``gateway`` knows it.

    Each gateway names callers of its own: what one says is never taken for another's caller, nor
    for somebody who calls the orchestrator directly.
    """
    return f"{gateway}|{caller}" if gateway else caller
