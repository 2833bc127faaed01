"""The statuses with which calls end that raise an error or are refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any
from uuid import uuid4

import grpc.aio

from specmesh.decoding.errors import InvalidField
from specmesh.serving.errors import (
    FailedPreconditionStatus,
    ServiceError,
    internal_status,
    to_status,
)
from specmesh.serving.rpc.observed_request import Context, ObservedRequest

log = logging.getLogger(__name__)

Handler = Callable[[Any, Context], Awaitable[Any]]
"""The function by which gRPC has a call answered."""

TELLING_SECONDS = 1.0
"""The time for which a handler waits for its client to read an error. Then the handler ends; the
client still gets the error when it reads."""


class Refusal(grpc.RpcMethodHandler):  # type: ignore[type-arg] # generic only in its stubs
    """A handler that answers a call of any kind with ``error``, and reads nothing.

    It gets no layers: the method may not exist, and metrics would get a series for every name that
    somebody invents.
    """

    request_streaming = response_streaming = True
    request_deserializer = response_serializer = None
    unary_unary = unary_stream = stream_unary = None

    def __init__(self, error: ServiceError) -> None:
        self._error = error

    @property
    def stream_stream(self) -> Any:  # type: ignore[override]
        """What gRPC calls."""
        return without_cycles(self._refuse)

    async def _refuse(self, requests: object, context: Context) -> None:  # noqa: ARG002
        async with ReportingErrors(ObservedRequest("", context)):
            raise self._error


class EarlyRefusal(Refusal):
    """The refusal of a method that exists, by a server that can't answer it yet. It gets the layers
    of any request, within which ``refusal`` is called."""

    def __init__(self, refusal: Callable[[], ServiceError]) -> None:
        self.refusal = refusal


class ReportingErrors(AbstractAsyncContextManager[None]):
    """Ends the call with the status of a ``ServiceError`` or ``InvalidField``, or of a model whose
    logits are not finite; logs any other error and hides it from the peer. A call whose peer is
    gone ends as one that its peer has cancelled.
    """

    def __init__(self, request: ObservedRequest) -> None:
        self._request = request

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(error, grpc.aio.InternalError):
            # gRPC would log it as an error of ours, with a traceback.
            raise asyncio.CancelledError from None
        if not isinstance(error, Exception) or isinstance(error, grpc.aio.AbortError):
            return False
        await _abort(self._request.context, self._status_of(error))
        return True

    def _status_of(self, error: Exception) -> grpc.Status:
        if isinstance(error, FloatingPointError):
            # Weights overflow or are broken: another replica of the model would fail as well.
            error = FailedPreconditionStatus("LOGITS_NOT_FINITE", str(error))
            log.warning("logits are not finite", extra={"method": self._request.method})
        if isinstance(error, ServiceError | InvalidField):
            return to_status(error)
        request_id = uuid4().hex
        told = {"method": self._request.method, "request_id": request_id}
        log.error("call failed", exc_info=error, extra=told)
        return internal_status(request_id)


def without_cycles(handler: Handler) -> Handler:
    """Return a handler that lets go of the frames which the error has passed that ends a call.

    gRPC keeps that error with the call and raises it again, so the handler may return. The frames
    refer to the call: each refused one would be left to the garbage collector, which stops all
    other calls while it searches.
    """

    async def handle(request: Any, context: Context) -> Any:
        try:
            return await handler(request, context)
        except grpc.aio.AbortError as error:
            cause = error.__context__
            error.__traceback__ = error.__context__ = None
            if cause is not None:
                cause.__traceback__ = None

    return handle


async def _abort(context: Context, status: grpc.Status) -> None:
    """End the call with ``status``. gRPC sends it once the client has read all earlier messages;
    wait at most ``TELLING_SECONDS`` for that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(TELLING_SECONDS):
            await context.abort_with_status(status)
