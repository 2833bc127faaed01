"""One replica at one address: its channel, its health and what it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

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

log = logging.getLogger(__name__)

CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    # Without it a frozen peer, whose kernel still answers, goes unnoticed.
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", 32 * 2**20),
    ("grpc.enable_retries", 0),  # the pool resends to another replica instead
)
HANDSHAKE_SECONDS = 5.0
RECONNECT_SECONDS = 0.2


OpenChannel = Callable[[str], grpc.aio.Channel]
"""Opens a channel to an address, host:port."""


def insecure_channel(address: str) -> grpc.aio.Channel:
    """The channel that soon notices a peer which went, and soon one that came back."""
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)


@dataclass(frozen=True, slots=True)
class PeerModel:
    """What a peer said of itself when it became ready."""

    info: model_pb2.ModelInfo
    tokenizer_json: str


def kind_of(model: model_pb2.ModelInfo) -> str:
    """Names a model: replicas of one model have one kind."""
    what = ":".join(filter(None, (model.weights_digest, model.dtype)))
    return f"{model.name}@{what}" if what else model.name


Admit = Callable[[PeerModel], Awaitable[str | None]]
"""Decides whether a peer fits this mesh; says why not, or None."""


class Peer:
    """Watches the health of one address and knows whether work can be sent there.

    Without ``admit`` it has no model to ask for.
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
        self.verifications = StreamPool(
            verifier_pb2_grpc.VerifierServiceStub(self.channel).VerifyEach
        )
        self.drafts = StreamPool(drafter_pb2_grpc.DrafterServiceStub(self.channel).DraftEach)
        self.assessments = StreamPool(
            confidence_pb2_grpc.ConfidenceServiceStub(self.channel).AssessEach
        )
        self.model: PeerModel | None = None
        self.kind = ""
        """Which model it serves; empty before it has said so."""
        self.refusal: str | None = None
        """Why the peer doesn't fit the mesh, if it doesn't."""
        self.num_outstanding = 0
        """Calls whose answers are wanted."""
        self.num_ending = 0
        """Calls that are being cancelled."""
        self.num_starts = 0
        """How many processes have served there, as far as is known."""
        self.changed = asyncio.Event()
        """Set whenever ``ready`` or ``refusal`` may have changed."""
        self.watchers: dict[Callable[[], None], None] = {}
        """Called then, too, in the order in which they came."""
        self._serving = False
        self._process_id = ""
        """Of the process that served last, if it said so."""
        self._service = service
        self._admit = admit
        self._watcher = asyncio.create_task(self._watch(), name=f"watch {address}")

    @property
    def serving(self) -> bool:
        """Whether the peer says that it serves, whatever it is."""
        return self._serving

    @property
    def ready(self) -> bool:
        """Whether the peer serves, and serves what this mesh needs."""
        known = self._admit is None or self.model is not None
        return self._serving and known and self.refusal is None

    def judge(self, refusal: str | None) -> None:
        """It has been considered anew, since the mesh is another one."""
        self.refusal = refusal
        self._tell()

    async def close(self) -> None:
        """Stop watching and close the channel."""
        self._watcher.cancel()
        await asyncio.gather(self._watcher, return_exceptions=True)
        await self.channel.close()

    async def serves_on(self, timeout_s: float) -> bool:
        """Whether the process that served last answers and has not been replaced. False if it
        can't be told apart from another."""
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
        """Follow the peer's health for ever; a new stream after every break."""
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
            except Exception:  # whatever a peer says of itself must not end the watch
                log.exception("peer not understood", extra={"peer": self.address})
            self._set_serving(False)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _handshake(self) -> str:
        """Ask what the peer serves; after a restart it may be something else. Returns which
        process serves, empty if it has no model to ask for."""
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
            self.model = described  # last: what broke the admission is to be asked again
            if self.refusal:
                log.error("peer refused", extra={"peer": self.address, "reason": self.refusal})
        return model.process_id

    def _count(self, process_id: str) -> None:
        """Only the connection may have broken since it served last, or only its health."""
        if not process_id or process_id != self._process_id:
            self.num_starts += 1
        self._process_id = process_id

    def _set_serving(self, serving: bool) -> None:
        if serving != self._serving:
            log.info("peer", extra={"peer": self.address, "serving": serving})
        self._serving = serving
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        for watcher in list(self.watchers):
            watcher()
