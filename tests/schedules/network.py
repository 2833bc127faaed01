"""What lies between processes: calls as ``grpc.aio`` shows them, over links that misbehave.

Messages of one call come in their order, those of different calls in any. A link that breaks
ends a call at both ends; one that stalls ends nothing and brings nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Protocol

from tests.schedules.client_call import ClientCall
from tests.schedules.clock import Process, current_process
from tests.schedules.status import GONE, LATE, Status

KEEPALIVE_S = (4.0, 7.0)
"""After how long the ping of a peer that doesn't answer ends its calls."""
CONNECT_S = (0.2, 1.0)
"""How long it takes to find out that nobody listens."""

Trace = Callable[..., None]
Observe = Callable[[ClientCall, Any], None]


class Server(Protocol):
    """What listens at an address."""

    process: Process

    def accept(self, call: ServerCall, request: bytes | None) -> None:
        """A call has come, with its request if it is not a stream of them."""


class ServerCall:
    """The server's end of a call."""

    def __init__(self, network: Network, client: ClientCall, deadline: float | None) -> None:
        self._network = network
        self.client = client
        self.method = client.method
        self.deadline = deadline
        self.over = False
        self.on_message: Callable[[bytes], None] = lambda message: None
        self.on_cancel: Callable[[], None] = lambda: None

    def reply(self, message: bytes) -> None:
        """Send a message."""
        if not self.over:
            self._network.to_client(self.client, self.client.received, message)

    def end(self, status: Status) -> None:
        """Say that this was all."""
        if not self.over:
            self.over = True
            self._network.to_client(self.client, self.client.ended, status)

    def received(self, message: bytes) -> None:
        """A message has come."""
        if not self.over:
            self.on_message(message)

    def cancel(self) -> None:
        """The client wants no more, or is gone."""
        if not self.over:
            self.over = True
            self.on_cancel()


class Channel:
    """A ``grpc.aio.Channel`` from ``process`` to an address, as far as generated stubs use it."""

    def __init__(
        self, network: Network, address: str, observe: Observe | None, *, keepalive: bool
    ) -> None:
        self._network = network
        self._address = address
        self._observe = observe
        self._keepalive = keepalive
        self._process = current_process()

    def unary_unary(self, method: str, **kinds: Any) -> Callable[..., ClientCall]:
        """See ``grpc.aio.Channel``."""
        return self._opener(method, kinds, streams=False)

    unary_stream = unary_unary

    def stream_stream(self, method: str, **kinds: Any) -> Callable[..., ClientCall]:
        """See ``grpc.aio.Channel``."""
        return self._opener(method, kinds, streams=True)

    async def close(self, grace: float | None = None) -> None:
        """Cancel all calls, as gRPC does with those that are left when the grace ends."""
        for call in self._network.calls_of(self._process):
            if call.channel is self:
                call.cancel()

    def _opener(
        self, method: str, kinds: dict[str, Any], *, streams: bool
    ) -> Callable[..., ClientCall]:
        def opened(request: Any = None, timeout: float | None = None, **_: Any) -> ClientCall:
            call = ClientCall(self._network, self, method, kinds, self._observe)
            body = None if streams else kinds["request_serializer"](request)
            self._network.open(call, self._address, body, timeout, keepalive=self._keepalive)
            return call

        return opened


class Network:
    """All links, and who listens where. Times in virtual seconds."""

    def __init__(self, rng: random.Random, latency_s: float, trace: Trace) -> None:
        self.latency_s = latency_s
        self.spikes = 0.0
        """How often a message takes up to ``spike_s`` longer."""
        self.spike_s = 0.0
        self.breaks = 0.0
        """How often a message breaks its call instead of arriving."""
        self.stalls = 0.0
        """How often a call brings nothing more from a message on."""
        self.rng = rng
        self.trace = trace
        self._servers: dict[str, Server] = {}
        self._calls: dict[ClientCall, None] = {}
        self._cuts: dict[tuple[str, str], float] = {}
        self._loop = asyncio.get_running_loop()

    def listen(self, address: str, server: Server) -> None:
        """Calls to ``address`` go to ``server``."""
        self._servers[address] = server

    def channel(self, address: str) -> Any:
        """A channel of the process that asks for it."""
        return Channel(self, address, None, keepalive=True)

    def observed_channel(self, address: str, observe: Observe) -> Any:
        """One without keepalive, each of whose messages is shown when it is read."""
        return Channel(self, address, observe, keepalive=False)

    def calls_of(self, process: Process | None) -> list[ClientCall]:
        """Calls that begin or end there, and are not over."""
        return [call for call in self._calls if process in {call.process, call.server_process}]

    @property
    def open_calls(self) -> list[ClientCall]:
        """All that are not over at their client."""
        return list(self._calls)

    def open(
        self,
        call: ClientCall,
        address: str,
        body: bytes | None,
        timeout: float | None,
        *,
        keepalive: bool,
    ) -> None:
        """Begin ``call``."""
        self._calls[call] = None
        now = self._loop.time()
        server = self._servers.get(address)
        deadline = None if timeout is None else now + timeout
        if deadline is not None:
            call.timer = self._loop.call_at(deadline, call.give_up, LATE)
        if server is None or not server.process.alive:
            self._loop.call_later(self.rng.uniform(*CONNECT_S), call.ended, GONE)
            return
        call.server_process = server.process
        call.server = ServerCall(self, call, deadline)
        call.keepalive = keepalive
        if keepalive and self._is_unreachable(call):
            self._loop.call_later(self.rng.uniform(*CONNECT_S), call.ended, GONE)
            return
        self.to_server(call, server.accept, call.server, body)

    def to_server(self, call: ClientCall, deliver: Callable[..., None], *args: Any) -> None:
        """Bring something to the server's end."""
        target = call.server_process
        if target is not None and (at := self._arrival(call, call.last_at_server)) is not None:
            call.last_at_server = at
            self._loop.call_at(at, deliver, *args, context=target.context)

    def to_client(self, call: ClientCall, deliver: Callable[..., None], *args: Any) -> None:
        """Bring something to the client's end."""
        if (at := self._arrival(call, call.last_at_client)) is not None:
            call.last_at_client = at
            self._loop.call_at(at, deliver, *args, context=call.context)

    def give_up(self, call: ClientCall, server: ServerCall) -> None:
        """Tell the server's end that nobody waits any more; a link that brings nothing is closed
        then, and that is noticed."""
        call.stalled = False
        self.to_server(call, server.cancel)
        if call.stalled and call.server_process is not None:
            self._loop.call_later(
                self.latency_s, server.cancel, context=call.server_process.context
            )

    def over(self, call: ClientCall) -> None:
        """The client's end is done with it."""
        self._calls.pop(call, None)

    def break_call(self, call: ClientCall, status: Status = GONE) -> None:
        """Tell both ends that the other is gone."""
        self.trace("break", call, status.code.name)
        call.stalled = True
        soon = self._loop.time() + self.latency_s
        self._loop.call_at(soon, call.ended, status, context=call.context)
        if call.server is not None and call.server_process is not None:
            self._loop.call_at(soon, call.server.cancel, context=call.server_process.context)

    def stall(self, call: ClientCall) -> None:
        """Nothing comes any more; keepalive notices, where there is one."""
        self.trace("stall", call)
        call.stalled = True
        if call.keepalive:
            noticed = self._loop.time() + self.rng.uniform(*KEEPALIVE_S)
            self._loop.call_at(noticed, self._notice, call, context=copy_context())

    def _notice(self, call: ClientCall) -> None:
        if call.stalled and not call.done():
            self.break_call(call)

    def reset(self, process: Process) -> None:
        """Break every call of a process that has died."""
        for call in self.calls_of(process):
            self.break_call(call)
            if call.process is process:
                self.over(call)

    def suspect(self, process: Process, until: float) -> None:
        """A process doesn't answer until then: keepalive notices, where there is one."""
        noticed = self._loop.time() + self.rng.uniform(*KEEPALIVE_S)
        if noticed < until:
            self._loop.call_at(noticed, self._lose, process, context=copy_context())

    def cut(self, one: Process, other: Process, until: float) -> None:
        """Nothing passes between two processes until then; it comes later."""
        self._cuts[_pair(one, other)] = until
        noticed = self._loop.time() + self.rng.uniform(*KEEPALIVE_S)
        if noticed < until:
            self._loop.call_at(noticed, self._lose, one, other)

    def calm(self) -> None:
        """Links behave from now on."""
        self.spikes = self.breaks = self.stalls = 0.0
        self._cuts.clear()

    def _lose(self, process: Process, other: Process | None = None) -> None:
        for call in self.calls_of(process):
            if call.keepalive and (other is None or other in {call.process, call.server_process}):
                self.break_call(call)

    def _is_unreachable(self, call: ClientCall) -> bool:
        assert call.server_process is not None
        until = self._cuts.get(_pair(call.process, call.server_process), 0.0)
        return until > self._loop.time() or call.server_process.frozen

    def _arrival(self, call: ClientCall, after: float) -> float | None:
        """When a message that leaves now arrives; None if it never does."""
        rng, now = self.rng, self._loop.time()
        if call.stalled:
            return None
        seconds = self.latency_s * (0.5 + rng.random())
        if self.spikes and rng.random() < self.spikes:
            seconds += rng.random() * self.spike_s
        if self.breaks and rng.random() < self.breaks:
            self.break_call(call)
            return None
        if self.stalls and rng.random() < self.stalls:
            self.stall(call)
            return None
        if self._cuts:
            seconds += max(0.0, self._cuts.get(_pair(call.process, call.server_process), 0.0) - now)
        return max(now + seconds, after)


def _pair(one: Process | None, other: Process | None) -> tuple[str, str]:
    names = sorted((str(one), str(other)))
    return names[0], names[1]
