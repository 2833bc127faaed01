"""The connection to one replica: a channel and the calls kept open on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import grpc.aio

from specmesh.mesh.v1alpha1 import confidence_pb2_grpc, drafter_pb2_grpc, verifier_pb2_grpc
from specmesh.mesh.v1alpha1.confidence_pb2 import AssessEachRequest, AssessEachResponse
from specmesh.mesh.v1alpha1.drafter_pb2 import (
    DraftEachRequest,
    DraftEachResponse,
    DraftManyRequest,
)
from specmesh.mesh.v1alpha1.verifier_pb2 import (
    VerifyEachRequest,
    VerifyEachResponse,
    VerifyManyRequest,
)
from specmesh.orchestrator.replicas.transport.many_call import ManyCalls
from specmesh.orchestrator.replicas.transport.stream_pool import StreamPool
from specmesh.serving.identity.certificates import Certificate, role_channel
from specmesh.serving.identity.watched import Watched

CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    # Without this, a frozen peer whose kernel still answers would go unnoticed.
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", 32 * 2**20),
    ("grpc.enable_http_proxy", 0),  # proxies lead out of the network, not to a mesh's peers
    ("grpc.enable_retries", 0),  # the pool resends to another replica instead
)
CALM_OPTIONS = tuple(
    # Servers allow one ping every five minutes unless they are configured otherwise.
    (name, 310_000 if name == "grpc.keepalive_time_ms" else value)
    for name, value in CHANNEL_OPTIONS
)
"""For a peer that took the pings of `CHANNEL_OPTIONS` for an attack. If it freezes, only deadlines
of calls and hedging notice."""
TOO_MANY_PINGS = "Too many pings"
"""The message of a call that such a peer has aborted."""
RETIRE_SECONDS = 60.0
"""Time limit of running calls on a replaced connection, that of the longest call."""

_CALLS = ("verifications", "many_verifications", "drafts", "many_drafts", "assessments")


class Channels(Protocol):
    """Opens channels to the replicas of one role."""

    @property
    def version(self) -> object:
        """A different object once newly opened channels would differ from earlier ones."""

    def open(self, address: str, *, calm: bool = False) -> grpc.aio.Channel:
        """Open a channel to ``address``, host:port; with ``calm`` it hardly ever pings."""


class PlainChannels:
    """Channels without TLS, which notice within seconds that a peer has gone or returned."""

    version = None

    def open(self, address: str, *, calm: bool = False) -> grpc.aio.Channel:
        """Open a channel to ``address``, host:port; with ``calm`` it hardly ever pings."""
        return grpc.aio.insecure_channel(address, options=_options(calm=calm))


class TlsChannels:
    """Channels with TLS, to peers whose certificate is for ``role``."""

    def __init__(self, certificate: Watched[Certificate], role: str) -> None:
        self._certificate = certificate
        self._role = role

    @property
    def version(self) -> object:
        """The current client certificate: a channel keeps the one it was opened with."""
        return self._certificate.current()

    def open(self, address: str, *, calm: bool = False) -> grpc.aio.Channel:
        """Open a channel to ``address``, host:port; with ``calm`` it hardly ever pings."""
        certificate = self._certificate.current()
        return role_channel(address, self._role, certificate, _options(calm=calm))


def _options(*, calm: bool) -> Sequence[tuple[str, int]]:
    return CALM_OPTIONS if calm else CHANNEL_OPTIONS


class Connection:
    """A channel to one replica and the calls kept open on it."""

    def __init__(self, channels: Channels, address: str, *, calm: bool = False) -> None:
        self._channels = channels
        self._version = channels.version
        self.is_calm = calm
        self.channel = channels.open(address, calm=calm)

    @cached_property
    def verifications(self) -> StreamPool[VerifyEachRequest, VerifyEachResponse]:
        """Open calls for verifications, if the peer is a replica of the target."""
        method = verifier_pb2_grpc.VerifierServiceStub(self.channel).VerifyEach
        return StreamPool(method)

    @cached_property
    def many_verifications(self) -> ManyCalls[VerifyEachRequest, VerifyEachResponse]:
        """The call for verifications of a peer that answers many requests on one."""
        method = verifier_pb2_grpc.VerifierServiceStub(self.channel).VerifyMany
        return ManyCalls(method, VerifyManyRequest)

    @cached_property
    def many_drafts(self) -> ManyCalls[DraftEachRequest, DraftEachResponse]:
        """The call for drafts of a peer that answers many requests on one."""
        method = drafter_pb2_grpc.DrafterServiceStub(self.channel).DraftMany
        return ManyCalls(method, DraftManyRequest)

    @cached_property
    def drafts(self) -> StreamPool[DraftEachRequest, DraftEachResponse]:
        """Open calls for drafts, if the peer is a drafter."""
        method = drafter_pb2_grpc.DrafterServiceStub(self.channel).DraftEach
        return StreamPool(method)

    @cached_property
    def assessments(self) -> StreamPool[AssessEachRequest, AssessEachResponse]:
        """Open calls for assessments, if the peer is a confidence service."""
        method = confidence_pb2_grpc.ConfidenceServiceStub(self.channel).AssessEach
        return StreamPool(method)

    @property
    def is_current(self) -> bool:
        """True if a connection opened now would use the same certificate."""
        return self._version is self._channels.version

    async def retire(self) -> None:
        """Let running calls end, and end the idle ones now."""
        for name in _CALLS:
            if name in vars(self):  # the cached property exists, so it has been used
                getattr(self, name).retire()
        try:
            await self.channel.close(RETIRE_SECONDS)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """Abort all calls."""
        await self.channel.close()
