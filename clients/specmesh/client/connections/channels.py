"""Connections to orchestrators, which each event loop and process makes on first use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

import grpc

from specmesh.client.connections.addresses import is_name
from specmesh.client.connections.credentials import Tls, TokenSource, is_loopback
from specmesh.client.connections.metadata import Metadata, MetadataSource, caller_metadata
from specmesh.client.connections.pems import PemTexts
from specmesh.client.connections.refusals import FULL_S, CallerMetadata, Refusals
from specmesh.client.connections.shared.answer import SharedAnswer
from specmesh.client.connections.shared.call import Call
from specmesh.client.connections.shared.calls import NUM_BEHIND_A_NAME, SharedCalls
from specmesh.client.connections.timeouts import LONGEST_S
from specmesh.client.errors import Cancelled, SpecmeshError
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1.generation_pb2_grpc import GenerationServiceStub
from specmesh.v1.tokenizer_pb2_grpc import TokenizerServiceStub

if TYPE_CHECKING:  # The asynchronous stub types exist only for the type checker.
    from specmesh.v1.generation_pb2_grpc import GenerationServiceAsyncStub
    from specmesh.v1.tokenizer_pb2_grpc import TokenizerServiceAsyncStub

logger = logging.getLogger("specmesh.client")

PASSED_OVER_S = 2.0
"""Time for which a target that broke a call is skipped: about as long as a restart takes."""

TOO_MANY_PINGS = "Too many pings"
"""The message of a call that a peer aborted because of keepalive pings."""
_PING_MS = 2_000
_CALM_MS = 310_000
"""By default servers and proxies allow one ping every five minutes."""

_MAX_RESPONSE_BYTES = 64 * 2**20
"""A request may have a million tokens, whose spellings alone are more than gRPC's 4 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """The settings that all channels of a client share."""

    tls: Tls | None
    token: TokenSource | None
    metadata: MetadataSource
    interceptors: Sequence[grpc.aio.ClientInterceptor]
    options: Sequence[tuple[str, str | int]]
    connect_s: float
    """Timeout of one attempt to connect."""
    drain_s: float
    """Longest time that calls may continue over a connection with replaced certificates."""
    shares_calls: bool
    """True if answers go by calls that carry many."""


class OpenCallReader(Protocol):
    """The reader of an open call."""

    def cancel(self) -> None:
        """Cancel the call and drop the reference to it."""

    def close(self) -> None:
        """Cancel the call for good: whoever waits for it is told."""


class Endpoint:
    """An orchestrator: its address (host:port) and the channel to it, in one event loop."""

    def __init__(self, address: str, settings: ChannelSettings) -> None:
        self.address = address
        self._settings = settings
        self._back_at = 0.0
        # Of several orchestrators behind a name, others may have room; and interceptors may name
        # another caller than the metadata do.
        self._holds_refusals = not (is_name(address) or settings.interceptors)
        self._refusals = Refusals(Random())  # noqa: S311 - jitter need not be unguessable
        self._channel: grpc.aio.Channel | None = None
        self._shared = SharedCalls(NUM_BEHIND_A_NAME if is_name(address) else 1)
        self._bears_pings = True
        self._opened_with: tuple[bool, PemTexts | None] | None = None
        self._draining: set[asyncio.Task[None]] = set()
        self.readers: WeakSet[OpenCallReader] = WeakSet()
        """The readers of open calls; each opens another call when its own is cancelled."""
        self._open_for_calls = asyncio.Event()
        self._open_for_calls.set()
        self.is_closed = False
        """True after `aclose`: no call is made any more."""
        self.num_suspensions = 0
        """The number of suspensions so far. A call that one has cancelled may be retried."""

    @property
    def generation(self) -> GenerationServiceAsyncStub:
        """A stub of its GenerationService. Raises as ``Tls.pems`` does."""
        return GenerationServiceStub(self._open())

    @property
    def tokenizer(self) -> TokenizerServiceAsyncStub:
        """A stub of its TokenizerService. Raises as ``Tls.pems`` does."""
        return TokenizerServiceStub(self._open())

    def shared_answer(
        self,
        request: pb.GenerateRequest | pb.ResumeRequest,
        metadata: CallerMetadata,
        timeout_s: float,
    ) -> SharedAnswer | None:
        """Ask for an answer by a call that carries many; return None if it needs its own. Raises as
        ``Tls.pems`` does."""
        if not self._settings.shares_calls:
            return None
        method = self.generation.GenerateMany  # first, since a new channel retires calls

        def open_call(caller: Metadata) -> Call:
            return method(metadata=caller)

        return self._shared.begin(open_call, request, metadata, timeout_s)

    async def metadata(self) -> CallerMetadata:
        """Wait until calls may start, then return the metadata of the next one. Raises as
        `caller_metadata` does."""
        await self._open_for_calls.wait()
        metadata = await caller_metadata(self._settings.metadata, self._settings.token)
        await self._open_for_calls.wait()  # Meanwhile they may have been suspended.
        return metadata

    def broke(self, error: SpecmeshError) -> None:
        """Record that a call to it broke, so that other calls avoid it for `PASSED_OVER_S`."""
        self._back_at = asyncio.get_running_loop().time() + PASSED_OVER_S
        if str(error) == TOO_MANY_PINGS and self._bears_pings:
            self._bears_pings = False
            logger.warning(
                "%s, or a proxy in between, refuses keepalive pings; from now on pings are sent "
                "only every five minutes, so a freeze of it is noticed late",
                self.address,
            )

    def lacked_room(self, error: SpecmeshError, caller: CallerMetadata, time_left_s: float) -> None:
        """Record that it refused ``caller``'s answer for lack of room, with ``time_left_s`` until
        its deadline: other calls avoid it for `FULL_S`."""
        now = asyncio.get_running_loop().time()
        self._back_at = max(self._back_at, now + FULL_S)
        if self._holds_refusals:
            self._refusals.add(error, caller, time_left_s, now)

    def refusal(self, caller: CallerMetadata, time_left_s: float) -> SpecmeshError | None:
        """Return the error by which it would refuse ``caller``'s answer for lack of room, as far as
        that is known without a call."""
        now = asyncio.get_running_loop().time()
        return self._refusals.find(caller, time_left_s, now)

    @property
    def passed_over(self) -> bool:
        """True while calls should prefer another target."""
        return asyncio.get_running_loop().time() < self._back_at

    async def suspend(self) -> None:
        """Break open calls and start none until `reopen`."""
        self._open_for_calls.clear()
        self.num_suspensions += 1
        for reader in tuple(self.readers):
            reader.cancel()
        await self._close_channels()

    def reopen(self) -> None:
        """Let calls start again."""
        self._open_for_calls.set()

    async def aclose(self) -> None:
        """Cancel the calls, whose readers are told, and close the connection for good."""
        self.is_closed = True
        self._open_for_calls.set()  # Whoever waits for it is told as well.
        for reader in tuple(self.readers):
            reader.close()
        await self._close_channels()

    async def _close_channels(self) -> None:
        draining, self._draining = self._draining, set()
        for each in draining:
            each.cancel()
        await self._shared.aclose()
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _open(self) -> grpc.aio.Channel:
        """Return the channel, a new one if certificates or settings have changed."""
        if self.is_closed:
            raise client_closed()
        tls = self._settings.tls
        wanted = self._bears_pings, None if tls is None else tls.pems()
        if self._channel is None or wanted != self._opened_with:
            logger.debug("channel to %s", self.address)
            bears_pings, pems = wanted
            channel = open_channel(self.address, self._settings, pems, calm=not bears_pings)
            if self._channel is not None:
                self._shared.retire()
                self._drain(self._channel)
                logger.info("replaced the connection to %s", self.address)
            self._channel, self._opened_with = channel, wanted
        return self._channel

    def _drain(self, channel: grpc.aio.Channel) -> None:
        """Close ``channel`` once its calls have ended; new calls use another."""
        closing = asyncio.create_task(channel.close(grace=self._settings.drain_s))
        self._draining.add(closing)
        closing.add_done_callback(self._draining.discard)


def client_closed() -> Cancelled:
    """Return the error of a call whose client was closed meanwhile."""
    return Cancelled("the client was closed", code=grpc.StatusCode.CANCELLED)


def open_channel(
    address: str, settings: ChannelSettings, pems: PemTexts | None, *, calm: bool = False
) -> grpc.aio.Channel:
    """Open a channel in the running event loop, with TLS if there are ``pems``; a ``calm`` one
    pings only every five minutes."""
    tls = settings.tls
    options: dict[str, str | int] = {
        # Despite its name, the first is the timeout of an attempt to connect; the other two make
        # a restarted target usable again within about a second.
        "grpc.min_reconnect_backoff_ms": int(min(settings.connect_s, LONGEST_S) * 1000),
        "grpc.initial_reconnect_backoff_ms": 100,
        "grpc.max_reconnect_backoff_ms": 1000,
        # Calls notice a frozen or cut-off orchestrator within 4 s, even before its first answer.
        "grpc.keepalive_time_ms": _CALM_MS if calm else _PING_MS,
        "grpc.keepalive_timeout_ms": 2_000,
        "grpc.http2.ping_timeout_ms": 2_000,
        "grpc.http2.max_pings_without_data": 0,
        "grpc.max_receive_message_length": _MAX_RESPONSE_BYTES,
    }
    if is_name(address):
        # A name may resolve to several orchestrators; by default all calls go to the first.
        options["grpc.service_config"] = '{"loadBalancingConfig": [{"round_robin": {}}]}'
        # gRPC resolves a name again only when a connection is lost, and by default only after 30 s.
        options["grpc.dns_min_time_between_resolutions_ms"] = 1000
    if tls is not None and tls.server_name is not None:
        options["grpc.ssl_target_name_override"] = tls.server_name
    if is_loopback(address):
        # A proxy would resolve this address to its own loopback; and the data must stay here.
        options["grpc.enable_http_proxy"] = 0
    options.update(settings.options)
    given = list(options.items())
    interceptors = list(settings.interceptors)
    if pems is None:
        return grpc.aio.insecure_channel(address, given, interceptors=interceptors)
    credentials = grpc.ssl_channel_credentials(
        pems.root_certificates, pems.private_key, pems.certificate_chain
    )
    return grpc.aio.secure_channel(address, credentials, given, interceptors=interceptors)
