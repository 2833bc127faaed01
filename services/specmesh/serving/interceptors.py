"""What stands between gRPC and a handler: the base for it, and the mapping of errors."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias, TypeVar

import grpc.aio

from specmesh.decoding.errors import InvalidField
from specmesh.serving.errors import ServiceError, internal_status, to_status

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
Continuation: TypeAlias = (
    "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]]"
)
Result = TypeVar("Result")

INFRASTRUCTURE = "/grpc."
"""Methods of gRPC's own services (health, reflection) begin so; they pass untouched."""


class CallInterceptor(grpc.aio.ServerInterceptor, ABC):
    """Runs ``around`` for each call, alike for unary and server-streaming handlers."""

    @abstractmethod
    async def around(
        self, method: str, context: Context, proceed: Callable[[], Awaitable[Result]]
    ) -> Result:
        """Await ``proceed()``, which ends when the call's last message is sent."""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """See ``grpc.aio.ServerInterceptor``."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith(INFRASTRUCTURE):
            return handler
        behaviour: Any
        wrap: Any
        if handler.response_streaming:
            behaviour = partial(_write_all, handler.unary_stream)
            wrap = grpc.unary_stream_rpc_method_handler
        else:
            behaviour = handler.unary_unary
            wrap = grpc.unary_unary_rpc_method_handler

        async def intercepted(request: object, context: Context) -> object:
            return await self.around(method, context, partial(behaviour, request, context))

        wrapped: grpc.RpcMethodHandler[Any, Any] = wrap(
            intercepted, handler.request_deserializer, handler.response_serializer
        )
        return wrapped


async def _write_all(behaviour: Any, request: object, context: Context) -> None:
    """Send what a streaming handler yields.

    gRPC would do so itself, but leave a cancelled generator to the garbage collector. Closing
    it here runs its clean-up before the call ends.
    """
    if inspect.iscoroutinefunction(behaviour):  # another interceptor's, which writes itself
        await behaviour(request, context)
        return
    messages: AsyncGenerator[Any, None]
    async with aclosing(behaviour(request, context)) as messages:
        async for message in messages:
            await context.write(message)


class ErrorInterceptor(CallInterceptor):
    """Tells the peer ``ServiceError`` and ``InvalidField``; hides and logs anything else."""

    async def around(
        self, method: str, context: Context, proceed: Callable[[], Awaitable[Result]]
    ) -> Result:
        """Turn an error of the handler into the call's status."""
        try:
            return await proceed()
        except (asyncio.CancelledError, grpc.aio.AbortError, grpc.aio.InternalError):
            # Cancelled by the peer, already answered, or nobody left to answer: gRPC's to end.
            raise
        except (ServiceError, InvalidField) as error:
            await context.abort_with_status(to_status(error))
        except Exception:
            log.exception("call failed", extra={"method": method})
            await context.abort_with_status(internal_status())
