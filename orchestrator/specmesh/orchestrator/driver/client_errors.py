"""The errors that clients get for calls that have failed for good."""

from __future__ import annotations

import grpc
import grpc.aio

from specmesh.orchestrator.replicas.retries.faults import CallFault, fault_of
from specmesh.serving.errors import (
    FailedPreconditionStatus,
    ResourceExhaustedStatus,
    UnavailableStatus,
    error_info,
    invalid_field,
    retry_after_s,
)

COMPILED_BY_REPLICAS = "sampling.grammar"
"""The field that only a replica can check, with its own tokens."""


def for_client(error: Exception) -> Exception:
    """Return the error that the client gets for a failed call: clients don't know of replicas."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return error
    details = error.details() or ""
    match fault_of(error):
        case CallFault.BUSY:
            retry_s = retry_after_s(error) or 1.0
            return ResourceExhaustedStatus("VERIFIERS_BUSY", details, retry_after_s=retry_s)
        case CallFault.TOO_SMALL:
            info = error_info(error)
            assert info is not None
            return FailedPreconditionStatus(info.reason, details, info.metadata)
        case CallFault.REFUSED:
            return _of_refusal(error, details)
    return UnavailableStatus("VERIFIER_LOST", f"no replica of the target answered: {details}")


def _of_refusal(error: grpc.aio.AioRpcError, details: str) -> Exception:
    info = error_info(error)
    if info is not None and info.reason == "LOGITS_NOT_FINITE":
        return FailedPreconditionStatus(info.reason, details)
    wrong = invalid_field(error)
    if wrong is not None and wrong.field.startswith(COMPILED_BY_REPLICAS):
        return wrong
    return error  # the request was checked before, so this is a bug of ours
