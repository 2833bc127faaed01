"""The context of one request of a call that carries many."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from specmesh.serving.rpc.observed_request import Context


class OneOfMany:
    """The part of a call's context that layers use, for one request of a call that carries many:
    its status is its own, and does not end the call."""

    has_own_caller = False
    """True if its own metadata says who asks, and not the call's."""
    tells_end = False
    """True if its caller is told when it has ended without a failure."""

    def __init__(self, context: Context, trace_context: Mapping[str, str] | None = None) -> None:
        self.method = ""
        """The name of the method that would answer it on a call of its own; empty if that is the
        call's without "Many"."""
        self._context = context
        self.trace_context = trace_context
        """The request's W3C trace context; None if its metadata has it."""
        self.failure: grpc.Status | None = None

    def invocation_metadata(self) -> Any:
        """Return the metadata of the call."""
        return self._context.invocation_metadata()

    def auth_context(self) -> Any:
        """Return what the caller's certificate says."""
        return self._context.auth_context()

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; None if there is none."""
        return self._context.time_remaining()

    def code(self) -> grpc.StatusCode | None:
        """Return the status with which the request has failed; None if it has not."""
        return None if self.failure is None else self.failure.code

    def details(self) -> str:
        """Return the message of that status."""
        return "" if self.failure is None else self.failure.details

    async def abort_with_status(self, status: grpc.Status) -> None:
        """Record the status of the request. Raises ``AbortError``, as the call's context does."""
        self.failure = status
        raise grpc.aio.AbortError


class OneWithMetadata(OneOfMany):
    """One request with the ``method``, ``metadata`` and ``timeout_s`` that a call of its own would
    have. The timeout counts from now."""

    has_own_caller = tells_end = True

    def __init__(
        self,
        context: Context,
        method: str,
        metadata: Sequence[tuple[str, str | bytes]],
        timeout_s: float | None,
    ) -> None:
        super().__init__(context)
        self.method = method
        self._metadata = metadata
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def invocation_metadata(self) -> Any:
        """Return the metadata of the request."""
        return self._metadata

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; None if there is none."""
        of_call = super().time_remaining()
        if self._deadline is None:
            return of_call
        own = max(0.0, self._deadline - time.monotonic())
        return own if of_call is None else min(own, of_call)
