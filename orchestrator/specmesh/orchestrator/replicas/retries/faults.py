"""Classifies failed calls by what they say about the replica and about the request."""

from __future__ import annotations

from enum import Enum, auto

import grpc
import grpc.aio

from specmesh.serving.errors import error_info

BROKEN = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS})
REFUSED = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
    }
)


class CallFault(Enum):
    """The meaning of a failed call for its replica, its request and a retry."""

    PREFIX_UNKNOWN = auto()
    """The replica lacks the prefix: retry with the whole prefix."""
    BUSY = auto()
    """The replica's queue or memory is full at the moment."""
    TOO_SMALL = auto()
    """The replica's KV cache can never hold the request; that of another may."""
    REFUSED = auto()
    """The replica refused the request as invalid. It may be wrong, so another replica is tried; two
    that agree are believed."""
    BROKE = auto()
    """The replica failed on the request or answered nonsense. Either may be to blame."""
    LOST = auto()
    """The connection broke: the request may have killed the replica."""
    UNAVAILABLE = auto()
    """The replica is draining, hangs, or is another service; the request is not to blame."""


BY_REASON = {"PREFIX_UNKNOWN": CallFault.PREFIX_UNKNOWN, "KV_CACHE_TOO_SMALL": CallFault.TOO_SMALL}


def fault_of(error: grpc.aio.AioRpcError) -> CallFault:
    """Classify ``error``."""
    code, info = error.code(), error_info(error)
    reason = "" if info is None else info.reason
    if reason in BY_REASON:
        return BY_REASON[reason]
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return CallFault.BUSY
    if code in REFUSED:
        return CallFault.REFUSED
    if code in BROKEN:
        return CallFault.BROKE
    if code is grpc.StatusCode.UNAVAILABLE and info is None:
        return CallFault.LOST
    return CallFault.UNAVAILABLE


def is_full(error: grpc.aio.AioRpcError) -> bool:
    """Return whether a replica has room for no call: it is busy, not only with grammars."""
    info = error_info(error)
    is_compiling = info is not None and info.reason == "COMPILER_BUSY"
    return fault_of(error) is CallFault.BUSY and not is_compiling
