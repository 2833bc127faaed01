"""The status of one request of a call that carries many."""

from __future__ import annotations

from typing import Final, TypeAlias

import grpc
import grpc.aio

from specmesh.mesh.v1alpha1 import failure_pb2 as mesh
from specmesh.v1 import generation_pb2 as v1

Failure: TypeAlias = mesh.RequestFailure | v1.RequestFailure

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_DETAILS_KEY: Final = "grpc-status-details-bin"


def write_failure(status: grpc.Status, failure: Failure) -> None:
    """Write the status with which a request ends to its message ``failure``."""
    details = dict(status.trailing_metadata or ()).get(_DETAILS_KEY, b"")
    failure.code = status.code.value[0]
    failure.message = status.details
    failure.status_details = details if isinstance(details, bytes) else b""


def code_of(failure: Failure) -> grpc.StatusCode:
    """Return the code of a failure; UNKNOWN for one that gRPC does not have, or that is none."""
    code = _CODES.get(failure.code, grpc.StatusCode.UNKNOWN)
    return grpc.StatusCode.UNKNOWN if code is grpc.StatusCode.OK else code


def read_failure(failure: Failure) -> grpc.aio.AioRpcError:
    """Return the error that a call of its own would raise if it ended so."""
    details = failure.status_details
    trailers = grpc.aio.Metadata(*([(_DETAILS_KEY, details)] if details else []))
    return grpc.aio.AioRpcError(code_of(failure), grpc.aio.Metadata(), trailers, failure.message)
