"""Layers between gRPC and a handler, around each request."""

from __future__ import annotations

import inspect
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from contextvars import ContextVar
from typing import Any, TypeAlias

import grpc.aio

from specmesh.serving.errors import ServiceError, UnimplementedStatus
from specmesh.serving.rpc.intake import Arrival, HeldMessage, Intake, check_metadata
from specmesh.serving.rpc.observed_request import Context, ObservedRequest
from specmesh.serving.rpc.reported_errors import (
    EarlyRefusal,
    Refusal,
    ReportingErrors,
    without_cycles,
)
from specmesh.serving.rpc.stalls import Stalls

log = logging.getLogger(__name__)

Continuation: TypeAlias = Callable[
    [grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]
]

STALL_SECONDS = 30.0
"""The time for which a message may wait for a client that doesn't read."""
INFRASTRUCTURE = "/grpc."
"""The prefix of methods of gRPC's own services (health, reflection), which get no layers."""
HEALTH = f"{INFRASTRUCTURE}health."


Layer = Callable[[ObservedRequest], AbstractContextManager[None]]
"""A context manager around the answering of a request, until its last message is sent."""
Guard = Callable[[ObservedRequest], AbstractAsyncContextManager[None]]
"""A context manager around a whole call, which refuses it by an error."""
Screen = Callable[[Any], Awaitable[None]]
"""A function that refuses a call by an error, given its metadata alone."""

_exchange: ContextVar[
    Callable[[Mapping[str, str] | None, Context | None], AbstractAsyncContextManager[None]]
] = ContextVar("_exchange")


def exchange(
    trace_context: Mapping[str, str] | None, context: Any = None
) -> AbstractAsyncContextManager[None]:
    """Return the layers for one request of a call that streams requests; its handler must enter
    them. ``context`` takes the status of the request; by default that of the call does. Without a
    ``trace_context``, the metadata of ``context`` has it."""
    around = _exchange.get(None)
    return nullcontext() if around is None else around(trace_context, context)


async def _let_in(metadata: Any) -> None:
    """Refuse nothing."""


def _without_layer(request: ObservedRequest) -> nullcontext[None]:  # noqa: ARG001
    return nullcontext()


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Runs every handler within ``layers``, the outermost first, which see the status with which a
    request ends. Within them, errors become statuses, ``gate`` may refuse a request, and ``guard``
    a call, once per call and before any request is parsed. ``screen`` may refuse a call before
    anything of its request is read, which takes memory for as long as its client likes.

    A handler of a stream of requests enters the layers itself, with ``exchange`` for each request:
    between two requests, the call is neither counted nor traced.
    """

    def __init__(
        self,
        layers: Sequence[Layer] = (),
        gate: Layer | None = None,
        intake: Intake | None = None,
        stall_s: float = STALL_SECONDS,
        guard: Guard | None = None,
        screen: Screen | None = None,
    ) -> None:
        self._observed = _nested(layers)
        self._admitted = gate or _without_layer
        self._guarded = guard or _without_layer
        self._screen = screen or _let_in
        self._intake = intake or Intake()
        self._stalls = Stalls(stall_s)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the handler of a call within the layers, or one that refuses the call."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if isinstance(handler, Refusal):
            if isinstance(handler, EarlyRefusal):
                handler = self._refusal(method.removeprefix("/"), handler.refusal)
            return handler
        if handler is not None and method.startswith(INFRASTRUCTURE):
            return await self._screened(handler, handler_call_details)
        try:
            check_metadata(handler_call_details.invocation_metadata)
        except ServiceError as error:
            return Refusal(error)
        if handler is None:
            message = f"there is no method {method}"
            return Refusal(UnimplementedStatus("NO_SUCH_METHOD", message, {"method": method[1:]}))
        try:
            await self._screen(handler_call_details.invocation_metadata)
        except ServiceError as error:
            refused = error  # which is unbound after this block
            return self._refusal(method.removeprefix("/"), lambda: refused)
        behaviour, wrap = self._wrapped(method.removeprefix("/"), handler)
        wrapped: grpc.RpcMethodHandler[Any, Any] = wrap(
            without_cycles(behaviour),
            self._intake.deserializer(handler.request_deserializer),
            handler.response_serializer,
        )
        return wrapped

    async def _screened(
        self, handler: grpc.RpcMethodHandler[Any, Any], details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Return the handler of a method of gRPC's own, which only for health needs no token."""
        if not details.method.startswith(HEALTH):
            try:
                await self._screen(details.invocation_metadata)
            except ServiceError as error:
                return Refusal(error)
        return handler

    def _refusal(
        self, method: str, refusal: Callable[[], ServiceError]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Return a handler that answers a call of any kind with the error that ``refusal`` returns,
        and reads nothing."""

        async def refuse(requests: object, context: Context) -> None:  # noqa: ARG001
            async with self._around(ObservedRequest(method, context)):
                raise refusal()

        return grpc.stream_stream_rpc_method_handler(without_cycles(refuse))

    def _wrapped(self, method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> tuple[Any, Any]:
        """Return the behaviour of ``handler`` within the layers, and the gRPC function that makes a
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
                    await self._write_all(behaviour, request, context, has_begun=False)
                finally:
                    self._intake.release(arrival)

        async def exchanging(requests: AsyncIterator[Arrival], context: Context) -> None:
            # gRPC leaks 100 bytes for a client that cancels before it has received initial metadata
            # (github.com/grpc/grpc/issues/43360), so send them first.
            await context.send_initial_metadata(())
            one, read = method.removesuffix("Each"), self._each
            if method.endswith("Many"):
                one, read = method.removesuffix("Many"), self._many
            service = one.rpartition("/")[0]

            def around(carrier: Any, own: Any) -> AbstractAsyncContextManager[None]:
                name = f"{service}/{own.method}" if own is not None and own.method else one
                return self._around_one(ObservedRequest(name, own or context, carrier))

            _exchange.set(around)
            observed = ObservedRequest(one, context)
            async with (
                ReportingErrors(observed),
                self._guarded(observed),
                aclosing(read(requests)) as messages,
            ):
                await self._write_all(behaviour, messages, context, has_begun=True)

        behaviour: Any
        if handler.request_streaming:
            behaviour = handler.stream_stream
            return exchanging, grpc.stream_stream_rpc_method_handler
        if handler.response_streaming:
            behaviour = handler.unary_stream
            return streaming, grpc.unary_stream_rpc_method_handler
        behaviour = handler.unary_unary
        return unary, grpc.unary_unary_rpc_method_handler

    @asynccontextmanager
    async def _around(self, request: ObservedRequest) -> AsyncIterator[None]:
        with self._observed(request):
            async with ReportingErrors(request):
                with self._admitted(request):
                    yield

    def _around_one(self, request: ObservedRequest) -> AbstractAsyncContextManager[None]:
        """Return the layers of one request of a call, whose caller may be another than the call's:
        a gateway asks for many."""
        if getattr(request.context, "has_own_caller", False):
            return self._around_guarded(request)
        return self._around(request)

    @asynccontextmanager
    async def _around_guarded(self, request: ObservedRequest) -> AsyncIterator[None]:
        async with self._around(request), self._guarded(request):
            yield

    async def _each(self, requests: AsyncIterator[Arrival]) -> AsyncGenerator[Any, None]:
        async for arrival in requests:
            request = self._intake.hold(arrival)
            try:
                yield request
            finally:
                self._intake.release(arrival)

    async def _many(self, requests: AsyncIterator[Arrival]) -> AsyncGenerator[HeldMessage, None]:
        async for arrival in requests:
            yield self._intake.hold_many(arrival)

    async def _write_all(
        self, behaviour: Any, request: object, context: Context, *, has_begun: bool
    ) -> None:
        """Send the messages that a streaming handler yields, and initial metadata before them
        unless the call ``has_begun`` with these.

        gRPC itself would leave a cancelled generator to the garbage collector, and wait forever for
        a client that doesn't read. Closing the generator here runs its clean-up before the call
        ends.
        """
        if inspect.iscoroutinefunction(behaviour):  # a handler that only raises or aborts
            await behaviour(request, context)
            return
        messages: AsyncGenerator[Any, None]
        async with aclosing(behaviour(request, context)) as messages:
            async for message in messages:
                if not has_begun:
                    # gRPC could not end the call while they wait with the first message.
                    await context.send_initial_metadata(())
                    has_begun = True
                await self._stalls.write(context, message)


def _nested(layers: Sequence[Layer]) -> Layer:
    """Combine ``layers`` into one; the first is the outermost."""
    if not layers:
        return _without_layer
    outermost, *others = layers
    if not others:
        return outermost
    inner = _nested(others)

    # Nesting once is cheaper than an ExitStack for each request.
    @contextmanager
    def around(request: ObservedRequest) -> Iterator[None]:
        with outermost(request), inner(request):
            yield

    return around
