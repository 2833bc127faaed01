"""Layers between gRPC and a handler, around each request."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import uuid4

import grpc.aio

from specmesh.decoding.errors import InvalidField
from specmesh.serving.errors import (
    ServiceError,
    UnimplementedStatus,
    internal_status,
    to_status,
)
from specmesh.serving.rpc.intake import Arrival, Intake, check_metadata
from specmesh.serving.rpc.stalls import Stalls

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
Continuation: TypeAlias = Callable[
    [grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]
]

STALL_SECONDS = 30.0
"""How long a message may wait for a client that doesn't read."""
TELLING_SECONDS = 1.0
"""How long an error may wait for it: then its handler ends, and the client finds it when it
reads."""

INFRASTRUCTURE = "/grpc."
"""How methods of gRPC's own services (health, reflection) begin; they get no layers."""


@dataclass(frozen=True, slots=True)
class ObservedRequest:
    """One request that is being answered: a call, or one of many on an open call."""

    method: str
    """Full name: "specmesh.mesh.v1alpha1.VerifierService/Verify"."""
    context: Context
    trace_context: Mapping[str, str] | None = None
    """The request's own W3C trace context; None if that of the call's metadata counts."""


Layer = Callable[[ObservedRequest], AbstractAsyncContextManager[None]]
"""Surrounds the answering of a request, until its last message is sent."""

_exchange: ContextVar[Callable[[Mapping[str, str]], AbstractAsyncContextManager[None]]] = (
    ContextVar("_exchange")
)


def exchange(trace_context: Mapping[str, str]) -> AbstractAsyncContextManager[None]:
    """The layers around one request of a call that streams requests, for its handler to enter."""
    around = _exchange.get(None)
    return nullcontext() if around is None else around(trace_context)


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Runs every handler within ``layers``, the outermost first, and lets in whom ``guard`` lets
    in, once a call and before it reads anything.

    A handler that takes a stream of requests enters them itself, with ``exchange`` for each:
    between two requests the call is not counted or traced.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        intake: Intake | None = None,
        stall_s: float = STALL_SECONDS,
        guard: Layer | None = None,
    ) -> None:
        self._guarded = guard or _admitting_all
        self._around = _nested(layers)
        self._intake = intake or Intake()
        self._stalls = Stalls(stall_s)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler of a call within the layers, or one that refuses the call."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if isinstance(handler, Refusal) or (
            handler is not None and method.startswith(INFRASTRUCTURE)
        ):
            return handler
        try:
            check_metadata(handler_call_details.invocation_metadata)
        except ServiceError as error:
            return Refusal(error)
        if handler is None:
            message = f"there is no method {method}"
            return Refusal(UnimplementedStatus("NO_SUCH_METHOD", message, {"method": method[1:]}))
        behaviour, wrap = self._wrapped(method.removeprefix("/"), handler)
        wrapped: grpc.RpcMethodHandler[Any, Any] = wrap(
            behaviour,
            self._intake.deserializer(handler.request_deserializer),
            handler.response_serializer,
        )
        return wrapped

    def _wrapped(self, method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> tuple[Any, Any]:
        """The behaviour of ``handler`` within the layers, and the gRPC function that makes a
        handler of it."""

        async def unary(arrival: Arrival, context: Context) -> object:
            observed = ObservedRequest(method, context)
            async with self._around(observed), self._guarded(observed):
                request = self._intake.hold(arrival)
                try:
                    return await behaviour(request, context)
                finally:
                    self._intake.release(arrival)

        async def streaming(arrival: Arrival, context: Context) -> None:
            observed = ObservedRequest(method, context)
            async with self._around(observed), self._guarded(observed):
                request = self._intake.hold(arrival)
                try:
                    await self._write_all(behaviour, request, context)
                finally:
                    self._intake.release(arrival)

        async def exchanging(requests: AsyncIterator[Arrival], context: Context) -> None:
            # A client that cancels before it has received these leaks 100 bytes in gRPC
            # (github.com/grpc/grpc/issues/43360).
            await context.send_initial_metadata(())
            one = method.removesuffix("Each")
            _exchange.set(lambda carrier: self._around(ObservedRequest(one, context, carrier)))
            observed = ObservedRequest(one, context)
            async with (
                reporting_errors(observed),
                self._guarded(observed),
                aclosing(self._each(requests)) as each,
            ):
                await self._write_all(behaviour, each, context)

        behaviour: Any
        if handler.request_streaming:
            behaviour = handler.stream_stream
            return exchanging, grpc.stream_stream_rpc_method_handler
        if handler.response_streaming:
            behaviour = handler.unary_stream
            return streaming, grpc.unary_stream_rpc_method_handler
        behaviour = handler.unary_unary
        return unary, grpc.unary_unary_rpc_method_handler

    async def _each(self, requests: AsyncIterator[Arrival]) -> AsyncGenerator[Any, None]:
        async for arrival in requests:
            request = self._intake.hold(arrival)
            try:
                yield request
            finally:
                self._intake.release(arrival)

    async def _write_all(self, behaviour: Any, request: object, context: Context) -> None:
        """Send what a streaming handler yields.

        gRPC would do so itself, but leave a cancelled generator to the garbage collector, and wait
        for ever for a client that doesn't read. Closing the generator here runs its clean-up before
        the call ends.
        """
        if inspect.iscoroutinefunction(behaviour):  # yields nothing: it raises, or aborts the call
            await behaviour(request, context)
            return
        messages: AsyncGenerator[Any, None]
        async with aclosing(behaviour(request, context)) as messages:
            async for message in messages:
                await self._stalls.write(context, message)


def _nested(layers: Sequence[Layer]) -> Layer:
    """One layer made of all ``layers``, the first outermost."""
    outermost, *others = layers
    if not others:
        return outermost
    inner = _nested(others)

    # Nested once, and not by an AsyncExitStack for each request, which costs more.
    @asynccontextmanager
    async def around(request: ObservedRequest) -> AsyncIterator[None]:
        async with outermost(request), inner(request):
            yield

    return around


def _admitting_all(request: ObservedRequest) -> AbstractAsyncContextManager[None]:  # noqa: ARG001
    return nullcontext()


class Refusal(grpc.RpcMethodHandler):  # type: ignore[type-arg] # which it takes in stubs alone
    """Answers a call of any kind with ``error``, and reads nothing.

    It gets no layers: the method may not exist, and metrics would have a series for every name that
    somebody invents.
    """

    request_streaming = response_streaming = True
    request_deserializer = response_serializer = None
    unary_unary = unary_stream = stream_unary = None

    def __init__(self, error: ServiceError) -> None:
        self._error = error
        self.stream_stream: Any = self._refuse

    async def _refuse(self, requests: object, context: Context) -> None:  # noqa: ARG002
        async with reporting_errors(ObservedRequest("", context)):
            raise self._error


@asynccontextmanager
async def reporting_errors(request: ObservedRequest) -> AsyncIterator[None]:
    """Tells the peer ``ServiceError`` and ``InvalidField``; hides and logs anything else."""
    try:
        yield
    except (asyncio.CancelledError, grpc.aio.AbortError, grpc.aio.InternalError):
        # Cancelled by the peer, already answered, or nobody left to answer: gRPC ends the call.
        raise
    except (ServiceError, InvalidField) as error:
        await _abort(request.context, to_status(error))
    except Exception:
        request_id = uuid4().hex
        log.exception("call failed", extra={"method": request.method, "request_id": request_id})
        await _abort(request.context, internal_status(request_id))


async def _abort(context: Context, status: grpc.Status) -> None:
    """End the call with ``status``, which gRPC sends once all messages before it are read; wait for
    that ``TELLING_SECONDS`` at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(TELLING_SECONDS):
            await context.abort_with_status(status)
