"""The record of a request that the layers around its handler are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc.aio

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class ObservedRequest:
    """One request being answered: a call, or one of many on an open call."""

    method: str
    """The full name, such as "specmesh.mesh.v1alpha1.VerifierService/Verify"."""
    context: Context
    trace_context: Mapping[str, str] | None = None
    """The request's own W3C trace context; None if the call's metadata has it."""
