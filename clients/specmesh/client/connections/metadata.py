"""The metadata of calls, by which their caller is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import grpc

from specmesh.client.connections.credentials import (
    TokenSource,
    bearer,
    failures_are_unauthenticated,
)
from specmesh.client.connections.refusals import CallerMetadata
from specmesh.client.errors import InvalidRequest

_KEY = re.compile(r"[a-z0-9_.-]+")
_BINARY = "-bin"

MAX_METADATA_BYTES = 16 * 2**10
"""The most that orchestrators accept (``serving/rpc/intake.py``). Above it, gRPC would refuse
some calls and not others, and give no reason."""
_PAIR_BYTES = 32
"""The bytes of each pair beyond its characters, as gRPC counts it (RFC 7541, section 4.1)."""

Metadata = Sequence[tuple[str, str | bytes]]
MetadataSource = Metadata | Callable[[], Metadata]
"""Metadata of all calls, or a function that returns it and is called before each."""


async def caller_metadata(source: MetadataSource, token: TokenSource | None) -> CallerMetadata:
    """Return the metadata of one call, with its token.

    Raises Unauthenticated if a function that gives them fails, TypeError or ValueError for a pair
    or a token that no header can hold, and InvalidRequest if they are too large.
    """
    with failures_are_unauthenticated("metadata"):
        pairs = source() if callable(source) else source
    carried = _checked(pairs)
    if token is not None:
        carried = (*carried, await bearer(token))
    num_bytes = sum(len(key) + len(value) + _PAIR_BYTES for key, value in carried)
    if num_bytes > MAX_METADATA_BYTES:
        raise InvalidRequest(
            f"{num_bytes} bytes of metadata, including the token, are more than "
            f"{MAX_METADATA_BYTES}",
            code=grpc.StatusCode.INVALID_ARGUMENT,
            reason="METADATA_TOO_LARGE",
            metadata={"num_bytes": str(num_bytes), "max_bytes": str(MAX_METADATA_BYTES)},
        )
    return carried


def _checked(pairs: object) -> CallerMetadata:
    """Raise TypeError or ValueError, naming the key, for what gRPC would refuse without a name, and
    by the status of a server that failed. Values may be secret, so no message has one."""
    if isinstance(pairs, str | bytes | Mapping) or not isinstance(pairs, Iterable):
        kind = type(pairs).__name__
        raise TypeError(f"metadata: expected a sequence of (key, value), got {kind}")
    return tuple(_checked_pair(at, pair) for at, pair in enumerate(pairs))


def _checked_pair(at: int, pair: object) -> tuple[str, str | bytes]:
    match pair:
        case (str(key), value):
            pass
        case _:
            raise TypeError(f"metadata[{at}]: expected (key, value), the key a string")
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"metadata: the key {key!r} must have only lower-case letters, digits, '_', '-' and '.'"
        )
    return key, _checked_value(key, value)


def _checked_value(key: str, value: object) -> str | bytes:
    if key.endswith(_BINARY):
        if not isinstance(value, bytes):
            raise TypeError(f"metadata: {key!r} takes bytes, not {type(value).__name__}")
        return value
    if not isinstance(value, str | bytes):
        raise TypeError(f"metadata: {key!r} takes a string, not {type(value).__name__}")
    text = value if isinstance(value, str) else value.decode("latin-1")
    if not (text.isascii() and text.isprintable()):
        raise ValueError(
            f"metadata: {key!r} takes printable ASCII; a key that ends in {_BINARY!r} takes bytes"
        )
    return value
