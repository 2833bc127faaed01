"""Durations of the calls that this process answers, by method and status.

Each request on an open call counts as a call of its own. A stream lasts until its last message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import grpc.aio

from specmesh.serving import conventions as names
from specmesh.serving.histograms import Series
from specmesh.serving.metrics import SERVER_CALL_DURATION
from specmesh.serving.rpc.observed_request import Context, ObservedRequest

_server_duration = SERVER_CALL_DURATION.instrument()

SERVER_FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""Statuses that OpenTelemetry's RPC conventions count as errors of a server; others are faults of
the caller."""


@contextmanager
def timed(request: ObservedRequest) -> Iterator[None]:
    """Record the duration of a call."""
    began = time.perf_counter()
    status = grpc.StatusCode.UNKNOWN
    try:
        yield
        status = status_of(request.context)
    except (asyncio.CancelledError, grpc.aio.InternalError, GeneratorExit):  # as in ``traced``
        status = grpc.StatusCode.CANCELLED
        raise
    except grpc.aio.AbortError:
        status = status_of(request.context)
        raise
    finally:
        _durations(request.method, status).record(time.perf_counter() - began)


def status_of(context: Context) -> grpc.StatusCode:
    """Return the status of a call that has ended."""
    # While no status is set, gRPC returns 0 here instead of a StatusCode.
    return context.code() or grpc.StatusCode.OK


@lru_cache(maxsize=1024)
def _durations(method: str, status: grpc.StatusCode) -> Series:
    attributes = {
        names.RPC_SYSTEM: names.GRPC,
        names.RPC_METHOD: method,
        names.RPC_STATUS: status.name,
    }
    if status in SERVER_FAULTS:
        attributes[names.ERROR_TYPE] = status.name
    return _server_duration.series(attributes)
