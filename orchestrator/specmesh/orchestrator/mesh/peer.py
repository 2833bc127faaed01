"""One replica at one address: its channel, its health and what it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specmesh.orchestrator.mesh.stream_pool import StreamPool
from specmesh.v1 import (
    confidence_pb2_grpc,
    drafter_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    verifier_pb2_grpc,
)
from specmesh.v1.confidence_pb2 import AssessEachRequest, AssessEachResponse
from specmesh.v1.drafter_pb2 import DraftEachRequest, DraftEachResponse
from specmesh.v1.verifier_pb2 import VerifyEachRequest, VerifyEachResponse

log = logging.getLogger(__name__)

CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    # Without this a frozen peer, whose kernel still answers, goes unnoticed.
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", 32 * 2**20),
    ("grpc.enable_retries", 0),  # the pool resends to another replica instead
)
HANDSHAKE_SECONDS = 5.0
"""Timeout of each call that asks a peer for its model."""
RECONNECT_SECONDS = 0.2
"""Pause before a health stream that broke is opened again."""


OpenChannel = Callable[[str], grpc.aio.Channel]
"""Opens a channel to an address, host:port."""


def insecure_channel(address: str) -> grpc.aio.Channel:
    """A channel that notices within seconds that a peer is gone, or back."""
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)


@dataclass(frozen=True, slots=True)
class PeerModel:
    """The model that a peer reported when it became ready."""

    info: model_pb2.ModelInfo
    tokenizer_json: str


def kind_of(model: model_pb2.ModelInfo) -> str:
    """Names a model: all replicas of a model have the same kind."""
    what = ":".join(filter(None, (model.weights_digest, model.dtype)))
    return f"{model.name}@{what}" if what else model.name


Admit = Callable[[PeerModel], Awaitable[str | None]]
"""Decides whether a peer fits this mesh; returns why not, None if it does."""


class Peer:
    """Watches the health of one address and knows whether calls can be sent there.

    Without ``admit`` the peer serves no model and is not asked for one.
    """

    def __init__(
        self,
        address: str,
        service: str,
        admit: Admit | None,
        open_channel: OpenChannel = insecure_channel,
    ) -> None:
        self.address = address
        self.channel = open_channel(address)
        self.model: PeerModel | None = None
        self.kind = ""
        """The kind of the model it serves (``kind_of``); empty until it is known."""
        self.refusal: str | None = None
        """Why the peer doesn't fit the mesh, if it doesn't."""
        self.num_outstanding = 0
        """Calls in flight whose answers are wanted."""
        self.num_ending = 0
        """Calls in flight that are being cancelled."""
        self.num_starts = 0
        """How many processes have served at this address, as far as is known."""
        self.changed = asyncio.Event()
        """Set whenever ``ready`` or ``refusal`` may have changed."""
        self.watchers: dict[Callable[[], None], None] = {}
        """Called whenever ``changed`` is set, in the order they were added."""
        self._serving = False
        self._process_id = ""
        """Id of the process that served last; empty if it reported none."""
        self._service = service
        self._admit = admit
        self._watcher = asyncio.create_task(self._watch(), name=f"watch {address}")

    @cached_property
    def verifications(self) -> StreamPool[VerifyEachRequest, VerifyEachResponse]:
        """Open calls for verifications, if the peer is a replica of the target."""
        return StreamPool(verifier_pb2_grpc.VerifierServiceStub(self.channel).VerifyEach)

    @cached_property
    def drafts(self) -> StreamPool[DraftEachRequest, DraftEachResponse]:
        """Open calls for drafts, if the peer is a drafter."""
        return StreamPool(drafter_pb2_grpc.DrafterServiceStub(self.channel).DraftEach)

    @cached_property
    def assessments(self) -> StreamPool[AssessEachRequest, AssessEachResponse]:
        """Open calls for assessments, if the peer is a confidence service."""
        return StreamPool(confidence_pb2_grpc.ConfidenceServiceStub(self.channel).AssessEach)

    @property
    def serving(self) -> bool:
        """Whether the peer's health is SERVING, whatever model it has."""
        return self._serving

    @property
    def ready(self) -> bool:
        """Whether the peer serves a model that fits this mesh."""
        known = self._admit is None or self.model is not None
        return self._serving and known and self.refusal is None

    def judge(self, refusal: str | None) -> None:
        """Admit (None) or refuse the peer anew, after the mesh has moved to another target."""
        self.refusal = refusal
        self._notify()

    async def close(self) -> None:
        """Stop watching and close the channel."""
        self._watcher.cancel()
        await asyncio.gather(self._watcher, return_exceptions=True)
        await self.channel.close()

    async def serves_on(self, timeout_s: float) -> bool:
        """Whether the process that served last answers and has not been replaced. False if it
        reported no id."""
        process_id = self._process_id
        if not process_id:
            return False
        stub = model_pb2_grpc.ModelServiceStub(self.channel)
        try:
            model = await stub.GetModel(model_pb2.GetModelRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError:
            return False
        return process_id == model.process_id == self._process_id

    async def _watch(self) -> None:
        """Follow the peer's health forever; open a new stream whenever one breaks."""
        stub = health_pb2_grpc.HealthStub(self.channel)
        request = health_pb2.HealthCheckRequest(service=self._service)
        while True:
            try:
                async for response in stub.Watch(request):
                    serving = response.status == health_pb2.HealthCheckResponse.SERVING
                    if serving:
                        self._count(await self._handshake())
                    self._set_serving(serving)
            except grpc.aio.AioRpcError as error:
                log.debug("peer away", extra={"peer": self.address, "code": error.code().name})
            except Exception:  # no answer of a peer may end the watch
                log.exception("peer not understood", extra={"peer": self.address})
            self._set_serving(False)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _handshake(self) -> str:
        """Ask for the peer's model, which may have changed in a restart. Returns the id of its
        process, empty if peers of this pool serve no model."""
        if self._admit is None:
            return ""
        stub = model_pb2_grpc.ModelServiceStub(self.channel)
        model = await stub.GetModel(model_pb2.GetModelRequest(), timeout=HANDSHAKE_SECONDS)
        known = self.model
        if known is None or known.info != model.model:
            pieces = [
                piece.data
                async for piece in stub.GetTokenizer(
                    model_pb2.GetTokenizerRequest(), timeout=HANDSHAKE_SECONDS
                )
            ]
            described = PeerModel(model.model, b"".join(pieces).decode())
            self.refusal = await self._admit(described)
            self.kind = kind_of(described.info)
            self.model = described  # last, so that an admission that raises is repeated
            if self.refusal:
                log.error("peer refused", extra={"peer": self.address, "reason": self.refusal})
        return model.process_id

    def _count(self, process_id: str) -> None:
        """Count a new process; only the connection or the health may have changed instead."""
        if not process_id or process_id != self._process_id:
            self.num_starts += 1
        self._process_id = process_id

    def _set_serving(self, serving: bool) -> None:
        if serving != self._serving:
            log.info("peer", extra={"peer": self.address, "serving": serving})
        self._serving = serving
        self._notify()

    def _notify(self) -> None:
        self.changed.set()
        for watcher in list(self.watchers):
            watcher()
