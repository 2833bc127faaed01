"""What stands between gRPC and a handler: layers around each request."""

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
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    nullcontext,
)
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc.aio

from specmesh.decoding.errors import InvalidField
from specmesh.serving.errors import ServiceError, internal_status, to_status

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
Continuation: TypeAlias = Callable[
    [grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]
]

INFRASTRUCTURE = "/grpc."
"""Methods of gRPC's own services (health, reflection) begin so; they pass untouched."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request that is being answered: a call, or one of many on an open call."""

    method: str
    """Full name: "specmesh.v1.VerifierService/Verify"."""
    context: Context
    trace_context: Mapping[str, str] | None = None
    """What the request says of its trace; None leaves it to the call's metadata."""


Layer = Callable[[Request], AbstractAsyncContextManager[None]]
"""Surrounds the answering of a request, until its last message is sent."""

_exchange: ContextVar[Callable[[Mapping[str, str]], AbstractAsyncContextManager[None]]] = (
    ContextVar("_exchange")
)


def exchange(trace_context: Mapping[str, str]) -> AbstractAsyncContextManager[None]:
    """The layers around one request of a call that streams them; for its handler to enter."""
    around = _exchange.get(None)
    return nullcontext() if around is None else around(trace_context)


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Runs every handler within ``layers``, the outermost first.

    A handler that takes a stream of requests does so itself, with ``exchange`` for each:
    between two requests the call counts for nothing.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """See ``grpc.aio.ServerInterceptor``."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith(INFRASTRUCTURE):
            return handler
        behaviour, wrap = self._wrapped(method.removeprefix("/"), handler)
        wrapped: grpc.RpcMethodHandler[Any, Any] = wrap(
            behaviour, handler.request_deserializer, handler.response_serializer
        )
        return wrapped

    def _wrapped(self, method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> tuple[Any, Any]:
        """The behaviour within the layers, and what makes a handler of it."""

        async def unary(request: object, context: Context) -> object:
            async with self._around(Request(method, context)):
                return await behaviour(request, context)

        async def streaming(request: object, context: Context) -> None:
            async with self._around(Request(method, context)):
                await _write_all(behaviour, request, context)

        async def exchanging(requests: object, context: Context) -> None:
            one = method.removesuffix("Each")
            _exchange.set(lambda carrier: self._around(Request(one, context, carrier)))
            await _write_all(behaviour, requests, context)

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
    async def _around(self, request: Request) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for layer in self._layers:
                await stack.enter_async_context(layer(request))
            yield


async def _write_all(behaviour: Any, request: object, context: Context) -> None:
    """Send what a streaming handler yields.

    gRPC would do so itself, but leave a cancelled generator to the garbage collector. Closing
    it here runs its clean-up before the call ends.
    """
    if inspect.iscoroutinefunction(behaviour):  # says itself why it sends nothing
        await behaviour(request, context)
        return
    messages: AsyncGenerator[Any, None]
    async with aclosing(behaviour(request, context)) as messages:
        async for message in messages:
            await context.write(message)


@asynccontextmanager
async def telling_errors(request: Request) -> AsyncIterator[None]:
    """Tells the peer ``ServiceError`` and ``InvalidField``; hides and logs anything else."""
    try:
        yield
    except (asyncio.CancelledError, grpc.aio.AbortError, grpc.aio.InternalError):
        # Cancelled by the peer, already answered, or nobody left to answer: gRPC's to end.
        raise
    except (ServiceError, InvalidField) as error:
        await request.context.abort_with_status(to_status(error))
    except Exception:
        log.exception("call failed", extra={"method": request.method})
        await request.context.abort_with_status(internal_status())
