"""What a failed call says about the replica and about the request."""

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
    """Kinds of failed calls."""

    FORGOTTEN = auto()
    """It lacks the prefix: it may have all of it."""
    BUSY = auto()
    """It has no room now."""
    TOO_SMALL = auto()
    """It can never hold what is asked; another may."""
    REFUSED = auto()
    """It finds fault with the request. It may be the one that is wrong, so another is asked;
    what two say is so."""
    BROKE = auto()
    """It broke on the request, or makes no sense. Either of the two may be to blame."""
    LOST = auto()
    """The connection broke: maybe the replica died of the request."""
    AWAY = auto()
    """It is going, stuck, or no replica of ours; the request has no part in it."""


BY_REASON = {"PREFIX_UNKNOWN": CallFault.FORGOTTEN, "KV_CACHE_TOO_SMALL": CallFault.TOO_SMALL}


def fault_of(error: grpc.aio.AioRpcError) -> CallFault:
    """What ``error`` says."""
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
    return CallFault.AWAY
