"""The metadata of calls, by which their caller is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import grpc

from specmesh.client.connections.credentials import (
    TokenSource,
    bearer,
    failures_are_unauthenticated,
)
from specmesh.client.connections.refusals import CallerMetadata
from specmesh.client.errors import InvalidRequest

MAX_METADATA_BYTES = 16 * 2**10
"""The most that orchestrators accept (``serving/rpc/intake.py``). Above it, gRPC would refuse
some calls and not others, and give no reason."""

Metadata = Sequence[tuple[str, str | bytes]]
MetadataSource = Metadata | Callable[[], Metadata]
"""Metadata of all calls, or a function that returns it and is called before each."""


async def caller_metadata(source: MetadataSource, token: TokenSource | None) -> CallerMetadata:
    """Return the metadata of one call, with its token.

    Raises Unauthenticated if a function that gives them fails, ValueError for a token that no
    header can hold, and InvalidRequest if they are too large.
    """
    with failures_are_unauthenticated("metadata"):
        pairs = source() if callable(source) else source
    carried = tuple((key, value) for key, value in pairs)
    if token is not None:
        carried = (*carried, await bearer(token))
    num_bytes = sum(len(key) + len(value) for key, value in carried)
    if num_bytes > MAX_METADATA_BYTES:
        raise InvalidRequest(
            f"{num_bytes} bytes of metadata, including the token, are more than "
            f"{MAX_METADATA_BYTES}",
            code=grpc.StatusCode.INVALID_ARGUMENT,
            reason="METADATA_TOO_LARGE",
            metadata={"num_bytes": str(num_bytes), "max_bytes": str(MAX_METADATA_BYTES)},
        )
    return carried
