"""The older way to ask a peer: a call for each request, for peers that lack the open ones.

To ``OpenCall`` it looks like an open call that ends with its first request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc.aio

from specmesh.mesh.v1alpha1.confidence_pb2 import AssessEachRequest, AssessEachResponse
from specmesh.mesh.v1alpha1.confidence_pb2_grpc import ConfidenceServiceStub
from specmesh.mesh.v1alpha1.drafter_pb2 import DraftEachRequest, DraftEachResponse
from specmesh.mesh.v1alpha1.drafter_pb2_grpc import DrafterServiceStub
from specmesh.mesh.v1alpha1.verifier_pb2 import VerifyEachRequest, VerifyEachResponse
from specmesh.mesh.v1alpha1.verifier_pb2_grpc import VerifierServiceStub

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class OlderWay(Generic[Request, Response]):
    """How a request of an open call is asked in a call of its own, and what answers it."""

    ask: Callable[[Request], Any]
    """Begins the call, with the trace context in its metadata."""
    read: Callable[[Any], AsyncIterator[Response]]
    """Its responses, as the open call would have sent them."""


class SingleCall(Generic[Request, Response]):
    """Does for one request what ``OpenCall`` needs of a streaming call."""

    def __init__(self, way: OlderWay[Request, Response]) -> None:
        self._way = way
        self._used = asyncio.Event()
        self._call: Any = None
        self._responses: AsyncIterator[Response] | None = None

    def done(self) -> bool:
        """Whether it has had its request."""
        return self._used.is_set()

    def cancel(self) -> bool:
        """Cancel the call; one that has had no request is over."""
        self._used.set()
        return self._call is not None and bool(self._call.cancel())

    async def initial_metadata(self) -> None:
        """Nothing to wait for: there is no call before the request."""

    async def write(self, request: Request) -> None:
        """Begin the call. Errors of the call are raised by ``read``."""
        self._call = self._way.ask(request)
        self._responses = self._way.read(self._call)
        self._used.set()

    async def read(self) -> Any:
        """The next response, or ``EOF``. Raises ``AioRpcError``."""
        await self._used.wait()
        if self._responses is None:
            return grpc.aio.EOF
        return await anext(self._responses, grpc.aio.EOF)


def verify_alone(channel: grpc.aio.Channel) -> OlderWay[VerifyEachRequest, VerifyEachResponse]:
    """By ``Verify``."""
    method = VerifierServiceStub(channel).Verify

    async def read(call: Any) -> AsyncIterator[VerifyEachResponse]:
        yield VerifyEachResponse(response=await call)

    return OlderWay(lambda each: method(each.request, metadata=_metadata(each)), read)


def draft_alone(channel: grpc.aio.Channel) -> OlderWay[DraftEachRequest, DraftEachResponse]:
    """By ``Draft``."""
    method = DrafterServiceStub(channel).Draft

    async def read(call: Any) -> AsyncIterator[DraftEachResponse]:
        async for response in call:
            yield DraftEachResponse(response=response)
        yield DraftEachResponse(last=True)

    return OlderWay(lambda each: method(each.request, metadata=_metadata(each)), read)


def assess_alone(channel: grpc.aio.Channel) -> OlderWay[AssessEachRequest, AssessEachResponse]:
    """By ``Assess``."""
    method = ConfidenceServiceStub(channel).Assess

    async def read(call: Any) -> AsyncIterator[AssessEachResponse]:
        async for response in call:
            yield AssessEachResponse(response=response)
        yield AssessEachResponse(last=True)

    return OlderWay(lambda each: method(each.request, metadata=_metadata(each)), read)


def _metadata(
    request: VerifyEachRequest | DraftEachRequest | AssessEachRequest,
) -> tuple[tuple[str, str], ...]:
    return tuple(request.trace_context.items())
