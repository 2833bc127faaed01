"""One replica at one address: its channel, its health and the model it serves."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from itertools import count

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specmesh.mesh.v1alpha1 import model_service_pb2, model_service_pb2_grpc
from specmesh.mesh.v1alpha1.confidence_pb2 import AssessEachRequest, AssessEachResponse
from specmesh.mesh.v1alpha1.drafter_pb2 import DraftEachRequest, DraftEachResponse
from specmesh.mesh.v1alpha1.verifier_pb2 import VerifyEachRequest, VerifyEachResponse
from specmesh.orchestrator.replicas.transport.connection import (
    TOO_MANY_PINGS,
    Channels,
    Connection,
    PlainChannels,
)
from specmesh.orchestrator.replicas.transport.exchange import OpenCalls
from specmesh.orchestrator.replicas.transport.inbox import Response
from specmesh.orchestrator.replicas.transport.many_call import ManyCalls
from specmesh.orchestrator.replicas.transport.open_call import Request
from specmesh.orchestrator.replicas.transport.peer_model import (
    HANDSHAKE_SECONDS,
    Admit,
    PeerModel,
    fetch,
    kind_of,
)
from specmesh.orchestrator.replicas.transport.stream_pool import StreamPool
from specmesh.serving import conventions as names
from specmesh.v1 import model_pb2

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 0.2
"""Pause before a health stream that broke is opened again."""


_process_numbers = count(1)


class Peer:
    """Watches the health of one address and knows whether calls can be sent there.

    Without ``admit`` the peer serves no model and none is requested.
    """

    def __init__(
        self,
        address: str,
        service: str,
        admit: Admit | None,
        channels: Channels | None = None,
    ) -> None:
        self.address = address
        self._channels = channels or PlainChannels()
        self._connection = Connection(self._channels, address)
        self._bears_pings = True
        self._replaced: set[asyncio.Task[None]] = set()
        """Tasks that close replaced connections, whose last calls are ending."""
        self.model: PeerModel | None = None
        self.kind = ""
        """The kind of the model it serves (``kind_of``); empty until it is known."""
        self.kv_capacity_tokens = math.inf
        """Tokens of one answer that its KV cache holds; infinite if nothing limits them."""
        self.heads_depth = 0
        """Most levels that its heads draft; 0 if it has no heads or they are unknown."""
        self.max_batch_calls = 0
        """Most calls that share a forward pass; 0 while that is unknown."""
        self.refusal: str | None = None
        """The reason why the peer does not fit the mesh; None if it does. ``notify`` must follow a
        change."""
        self.has_left = False
        """True once it is no longer one of its pool's. Then its address may belong to another peer,
        and nothing is to be remembered of its last calls."""
        self.num_outstanding = 0
        """Calls in flight whose answers are wanted."""
        self.num_ending = 0
        """Calls in flight that are being cancelled."""
        self.full_until = -math.inf
        """The time, by the event loop's clock, until which it asked for no further calls."""
        self.process_number = 0
        """Identifies the latest process, as far as processes can be told apart: a new number for
        each process seen at any peer, 0 before the first."""
        self.changed = asyncio.Event()
        """Set whenever ``ready`` or ``refusal`` may have changed."""
        self.watchers: dict[Callable[[], None], None] = {}
        """Called whenever ``changed`` is set, in the order they were added."""
        self.process_id = ""
        """Id of the process that served last; empty if it did not report one."""
        self.identity = address
        """The id of the process that serves there, which is the same at all its addresses and for
        every orchestrator; the address if the process did not report one."""
        self.instance = ""
        """Name of the replica, in Kubernetes that of its pod; empty if it did not report one."""
        self._serving = False
        self._away_for = ""
        """The reason for the latest failure to answer."""
        self._service = service
        self._lacks_service = f"it serves no {service}; is it of another role?"
        self._admit = admit
        self._watcher = asyncio.create_task(self._watch(), name=f"watch {address}")

    @property
    def channel(self) -> grpc.aio.Channel:
        """The channel, for calls other than those that are kept open."""
        return self._connection.channel

    @property
    def verifications(self) -> OpenCalls[VerifyEachRequest, VerifyEachResponse]:
        """Open calls for verifications, if the peer is a replica of the target."""
        connection = self._connection
        return self._calls(connection.verifications, connection.many_verifications)

    @property
    def drafts(self) -> OpenCalls[DraftEachRequest, DraftEachResponse]:
        """Open calls for drafts, if the peer is a drafter."""
        return self._calls(self._connection.drafts, self._connection.many_drafts)

    @property
    def assessments(self) -> OpenCalls[AssessEachRequest, AssessEachResponse]:
        """Open calls for assessments, if the peer is a confidence service."""
        return self._connection.assessments

    @property
    def title(self) -> str:
        """The address and, if known, the name, for messages."""
        return f"{self.address} ({self.instance})" if self.instance else self.address

    @property
    def log_fields(self) -> dict[str, str]:
        """The address and, if known, the name, for log lines."""
        named = {"replica": self.instance} if self.instance else {}
        return {"peer": self.address, **named}

    @property
    def attributes(self) -> dict[str, str]:
        """The name, for the span of a call, which already has the address."""
        return {names.REPLICA: self.instance} if self.instance else {}

    @property
    def serving(self) -> bool:
        """True if the peer's health is SERVING, whatever model it has."""
        return self._serving

    @property
    def ready(self) -> bool:
        """True if the peer serves a model that fits this mesh."""
        known = self._admit is None or self.model is not None
        return self._serving and known and self.refusal is None

    def can(self, feature: model_pb2.ModelFeature.ValueType) -> bool:
        """Return whether the model it serves is known to have ``feature``."""
        return self.model is not None and feature in self.model.features

    def notify(self) -> None:
        """Tell the watchers that ``ready`` or ``refusal`` may have changed."""
        self.changed.set()
        for watcher in list(self.watchers):
            watcher()

    async def close(self) -> None:
        """Stop watching and close the connection."""
        await self._stop_watching()
        for retiring in self._replaced:
            retiring.cancel()
        await asyncio.gather(*self._replaced, return_exceptions=True)
        await self._connection.close()

    def retire(self) -> asyncio.Task[None]:
        """Stop being ready, and close the connection once the running calls have ended."""
        self._serving, self.has_left = False, True
        return asyncio.create_task(self._retire(), name=f"retire {self.address}")

    async def _retire(self) -> None:
        await self._stop_watching()
        await asyncio.gather(self._connection.retire(), *self._replaced)

    async def _stop_watching(self) -> None:
        self._watcher.cancel()
        await asyncio.gather(self._watcher, return_exceptions=True)

    async def serves_on(self, timeout_s: float) -> bool:
        """Return whether the process that served last still answers; False if it was replaced or
        did not report an id."""
        process_id = self.process_id
        if not process_id:
            return False
        stub = model_service_pb2_grpc.ModelServiceStub(self.channel)
        try:
            model = await stub.GetModel(model_service_pb2.GetModelRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError:
            return False
        except asyncio.CancelledError:  # gRPC raises this too, if the channel was closed
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            return False
        return process_id == model.process_id == self.process_id

    async def _watch(self) -> None:
        """Follow the peer's health forever, opening a new stream whenever one breaks."""
        request = health_pb2.HealthCheckRequest(service=self._service)
        while True:
            try:
                self._renew()
                stub = health_pb2_grpc.HealthStub(self.channel)
                async for response in stub.Watch(request):
                    self._check_service(response.status)
                    serving = response.status == health_pb2.HealthCheckResponse.SERVING
                    if serving:
                        self._count(await self._handshake())
                    self._set_serving(serving)
            except grpc.aio.AioRpcError as error:
                self._away(error)
            except Exception:  # no answer of a peer may end the watch
                log.exception("unexpected answer from a peer", extra=self.log_fields)
            self._set_serving(False)
            await asyncio.sleep(RECONNECT_SECONDS)

    def _calls(
        self, alone: StreamPool[Request, Response], together: ManyCalls[Request, Response]
    ) -> OpenCalls[Request, Response]:
        """Return what carries the next request. One that is alone goes by a call for one request at
        a time, which takes fewer turns of the event loops on both sides."""
        if not self.can(model_pb2.MODEL_FEATURE_MANY_REQUESTS):
            return alone
        return together if alone.is_busy or together.is_shared else alone

    def _renew(self) -> None:
        """Replace the lost or not yet made connection if certificates have changed, or if the peer
        tolerates only rare pings.

        A working connection is kept: its calls continue under the certificates they began with.
        """
        calm = not self._bears_pings
        if self._connection.is_current and self._connection.is_calm == calm:
            return
        newest = Connection(self._channels, self.address, calm=calm)
        former, self._connection = self._connection, newest
        retiring = asyncio.create_task(former.retire())
        self._replaced.add(retiring)
        retiring.add_done_callback(self._replaced.discard)

    def _away(self, error: grpc.aio.AioRpcError) -> None:
        """Log why the peer does not answer, once for each reason in a row, and ping it less often
        if it objects to pings."""
        reason = error.details() or error.code().name
        if reason == TOO_MANY_PINGS and self._bears_pings:
            self._bears_pings = False
            log.warning(
                "peer refuses keepalive pings",
                extra={
                    **self.log_fields,
                    "effect": "it is pinged every five minutes instead, so that a freeze is "
                    "noticed late",
                    "remedy": "its server must set grpc.http2.min_ping_interval_without_data_ms "
                    "to 5000 or less",
                },
            )
        if reason != self._away_for:
            log.info("peer away", extra={**self.log_fields, "reason": reason})
        self._away_for = reason

    def _check_service(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        """Refuse a process that doesn't have the service, such as one of another role, until one
        that does answers there; our own report its health from their first moment on."""
        has_service = status != health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        if has_service and self.refusal == self._lacks_service:
            self.refusal = None
        elif not has_service and self.refusal != self._lacks_service:
            self.refusal = self._lacks_service
            log.warning("peer refused", extra={**self.log_fields, "reason": self.refusal})

    async def _handshake(self) -> str:
        """Fetch the peer's model and chat template, which may have changed in a restart.

        Returns the id of its process, empty if peers of this pool serve no model."""
        if self._admit is None:
            return ""
        stub = model_service_pb2_grpc.ModelServiceStub(self.channel)
        model = await stub.GetModel(model_service_pb2.GetModelRequest(), timeout=HANDSHAKE_SECONDS)
        self.instance = model.instance
        known = self.model
        restarted = not model.process_id or model.process_id != self.process_id
        if known is None or restarted or known.info != model.model:
            described = await fetch(stub, model)
            self.refusal = await self._admit(described)
            self.kind = kind_of(described.info)
            self.kv_capacity_tokens = described.info.kv_capacity_tokens or math.inf
            self.heads_depth = described.info.heads_depth
            self.max_batch_calls = described.info.max_batch_calls
            self.model = described  # set last, so that an admission that raised is repeated
            if self.refusal:
                log.error("peer refused", extra={**self.log_fields, "reason": self.refusal})
        return model.process_id

    def _count(self, process_id: str) -> None:
        """Count a new process, unless only the connection or the health has changed."""
        if not process_id or process_id != self.process_id:
            self.process_number = next(_process_numbers)
            self.full_until = -math.inf
        self.process_id = process_id
        self.identity = process_id or self.address

    def _set_serving(self, serving: bool) -> None:
        if serving != self._serving:
            log.info("peer", extra={**self.log_fields, "serving": serving})
        self._serving = serving
        self.notify()
