"""The replicas to measure, called as an orchestrator calls them: on open calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc.aio

from specmesh.cli.local.process import StartError
from specmesh.mesh.v1alpha1 import (
    cost_pb2,
    drafter_pb2,
    model_service_pb2,
    model_service_pb2_grpc,
    tokens_pb2,
    verifier_pb2,
)
from specmesh.mesh.v1alpha1.drafter_pb2_grpc import DrafterServiceStub
from specmesh.mesh.v1alpha1.verifier_pb2_grpc import VerifierServiceStub
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.serving.identity.certificates import Certificate, role_channel
from specmesh.serving.identity.roles import DRAFTER, VERIFIER
from specmesh.tools.profile.measure.settings import DRAFT_WIDTHS
from specmesh.v1 import model_pb2

if TYPE_CHECKING:  # The asynchronous stub exists for the type checker only.
    from specmesh.mesh.v1alpha1.model_service_pb2_grpc import ModelServiceAsyncStub

CALL_SECONDS = 60.0
"""Timeout of one call. None is retried: a profile of a failing mesh is worthless."""
REACH_SECONDS = 10.0
"""Time to wait for a replica's first answer."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A verification or a draft, and its times."""

    messages: Sequence[Any]
    """One VerifyResponse, or the DrafterResponses of a draft."""
    round_trip_ms: float
    queue_ms: float
    forward_ms: float
    batch_calls: int
    """Number of calls that shared the latest forward."""
    batch_tokens: int

    @property
    def hop_ms(self) -> float:
        """Return the time besides queue and forward."""
        return max(0.0, self.round_trip_ms - self.queue_ms - self.forward_ms)


class Replica:
    """One verifier or drafter."""

    def __init__(
        self,
        role: str,
        address: str,
        channel: grpc.aio.Channel,
        model: model_service_pb2.GetModelResponse,
    ) -> None:
        self.role = role
        self.address = address
        self.info: model_pb2.ModelInfo = model.model
        self.threads = model.num_threads
        """Number of threads of a forward; 0 if its process doesn't report it."""
        shaped = model_pb2.MODEL_FEATURE_TREE_SHAPE in self.info.features
        self.draft_widths = DRAFT_WIDTHS if shaped else DRAFT_WIDTHS[:1]
        """The widths of the drafts that it can make."""
        self._channel = channel

    @asynccontextmanager
    async def line(self) -> AsyncIterator[OpenLine]:
        """Open a call, which carries one request at a time."""
        if self.role == VERIFIER:
            call: Any = VerifierServiceStub(self._channel).VerifyEach()
        else:
            call = DrafterServiceStub(self._channel).DraftEach()
        try:
            yield OpenLine(self, call)
        finally:
            call.cancel()

    @asynccontextmanager
    async def lines(self, count: int) -> AsyncIterator[Sequence[OpenLine]]:
        """Open ``count`` calls."""
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.line()) for _ in range(count)]

    async def tokenizer(self) -> str:
        """Return its ``tokenizer.json``; empty for a model that works on any tokens."""
        stub: ModelServiceAsyncStub = model_service_pb2_grpc.ModelServiceStub(self._channel)
        request = model_service_pb2.GetTokenizerRequest()
        pieces = [piece.data async for piece in stub.GetTokenizer(request, timeout=CALL_SECONDS)]
        return b"".join(pieces).decode()

    def failed(self, error: grpc.aio.AioRpcError) -> StartError:
        """Return the error for the user about a failed call."""
        code, details = error.code(), error.details()
        return StartError(f"{self.role} at {self.address}: {code.name}: {details}")


class OpenLine:
    """An open call. Requests on it raise StartError if they fail or time out."""

    def __init__(self, replica: Replica, call: Any) -> None:
        self._replica = replica
        self._call = call

    async def verify(
        self,
        prefix: CommittedPrefix,
        tree: tokens_pb2.TokenTree,
        sampling: Any,
        next_draft: verifier_pb2.NextDraft | None = None,
    ) -> Timed:
        """Verify ``tree`` below all of ``prefix``."""
        request = verifier_pb2.VerifyRequest(
            prefix=self._message(prefix), tree=tree, sampling=sampling, next_draft=next_draft
        )
        timed = await self._timed(verifier_pb2.VerifyEachRequest(request=request), lambda _: True)
        prefix.seen_by(self._replica.address, prefix.length)
        return timed

    async def draft(self, prefix: CommittedPrefix, request: drafter_pb2.DraftRequest) -> Timed:
        """Draft by ``request``, which lacks its prefix, below all of ``prefix``."""
        request.prefix.CopyFrom(self._message(prefix))
        timed = await self._timed(
            drafter_pb2.DraftEachRequest(request=request), lambda message: message.last
        )
        prefix.seen_by(self._replica.address, prefix.length)
        return timed

    def _message(self, prefix: CommittedPrefix) -> tokens_pb2.Prefix:
        return prefix.message(self._replica.address, prefix.length, ())

    async def _timed(self, message: Any, is_last: Callable[[Any], bool]) -> Timed:
        began = time.perf_counter()
        messages = []
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._call.write(message)
                while True:
                    received = await self._call.read()
                    if received is grpc.aio.EOF:
                        raise StartError(
                            f"{self._replica.role} at {self._replica.address} ended the call"
                        )
                    if received.HasField("response"):
                        messages.append(received.response)
                    if is_last(received):
                        break
        except TimeoutError:
            where = f"{self._replica.role} at {self._replica.address}"
            raise StartError(f"{where} did not answer within {CALL_SECONDS:g} s") from None
        except grpc.aio.AioRpcError as error:
            raise self._replica.failed(error) from error
        round_trip_ms = (time.perf_counter() - began) * 1e3
        return _measured(messages, round_trip_ms)


def _measured(messages: Sequence[Any], round_trip_ms: float) -> Timed:
    costs: list[cost_pb2.ComputeCost] = [message.cost for message in messages]
    last = costs[-1] if costs else cost_pb2.ComputeCost()
    return Timed(
        messages=messages,
        round_trip_ms=round_trip_ms,
        queue_ms=sum(cost.queue_ms for cost in costs),
        forward_ms=sum(cost.forward_ms for cost in costs),
        batch_calls=last.num_batch_calls,
        batch_tokens=last.num_batch_tokens,
    )


@asynccontextmanager
async def reached(
    role: str, address: str, certificate: Certificate | None
) -> AsyncIterator[Replica]:
    """Connect to the replica at ``address``. Raises StartError if there is none."""
    if certificate is None:
        channel = grpc.aio.insecure_channel(address)
    else:
        channel = role_channel(address, role, certificate)
    async with channel:
        stub: ModelServiceAsyncStub = model_service_pb2_grpc.ModelServiceStub(channel)
        try:
            response = await stub.GetModel(
                model_service_pb2.GetModelRequest(), timeout=REACH_SECONDS, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as error:
            details = f"{error.code().name}: {error.details()}"
            raise StartError(f"{role} at {address}: {details}") from error
        yield Replica(role, address, channel, response)


@dataclass(frozen=True, slots=True)
class Replicas:
    """A replica of each role."""

    verifier: Replica
    drafter: Replica | None

    @property
    def heads_depth(self) -> int:
        """Return how many levels the target's heads draft; 0 without heads."""
        return self.verifier.info.heads_depth

    @property
    def vocab_size(self) -> int:
        """Return the vocabulary size, which both share."""
        return self.verifier.info.vocab_size


@asynccontextmanager
async def connected(
    verifier: str, drafter: str | None, certificate: Certificate | None = None
) -> AsyncIterator[Replicas]:
    """Connect to the replicas at these addresses. Raises StartError."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(reached(VERIFIER, verifier, certificate))
        second = None
        if drafter is not None:
            second = await stack.enter_async_context(reached(DRAFTER, drafter, certificate))
        yield Replicas(first, second)


def connected_in(addresses: Mapping[str, str]) -> AbstractAsyncContextManager[Replicas]:
    """Connect to the first verifier and the first drafter of a local mesh, found by process name.
    Raises StartError."""
    drafter = next((addresses[name] for name in addresses if "drafter" in name), None)
    return connected(addresses["verifier-0"], drafter)
