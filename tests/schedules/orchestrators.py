"""A whole orchestrator in a simulated process: everything of it is real but gRPC and Redis."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from tests.schedules.clock import Process
from tests.schedules.drafter import Confidence, Drafter
from tests.schedules.names import ENTRIES, VERIFIERS, Names
from tests.schedules.network import Network, ServerCall
from tests.schedules.status import CANCELLED, OK, Status
from tests.schedules.store import Client, Redis
from tests.schedules.verifier import Verifier

from specmesh.orchestrator.replicas.discovery.follower import Follower
from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.orchestrator.replicas.prefixes.holders import PrefixHolders
from specmesh.orchestrator.replicas.prefixes.shared_holders import SharedHolders
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.replicas.target import TargetRegistry
from specmesh.orchestrator.requests.plan import Defaults
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.orchestrator.servicer import GenerationServicer
from specmesh.serving.rpc.interceptors import CallInterceptor
from specmesh.serving.store.prefix_directory import PrefixDirectory
from specmesh.serving.store.session_store import SessionStore
from specmesh.v1 import generation_pb2_grpc

answering: ContextVar[ServerCall | None] = ContextVar("answering", default=None)
"""The call that an orchestrator is answering."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of an orchestrator's peers."""

    verifiers: list[str]
    drafters: list[str]
    filters: list[str]
    names: Names | None = None
    """By which verifiers are found instead."""


class Orchestrator:
    """One process, from its start to its end."""

    def __init__(
        self,
        address: str,
        network: Network,
        addresses: Addresses,
        redis: Redis | None,
        prompts: PromptReader,
    ) -> None:
        self.process = Process(address)
        self.address = address
        self._network = network
        self._addresses = addresses
        self._redis = redis
        self._prompts = prompts
        self.pools: list[Pool] = []
        self._follower: Follower | None = None
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self._dice = random.Random(network.rng.getrandbits(64))
        self.starting = self.process.start(self._start())

    def accept(self, call: ServerCall, request: bytes | None) -> None:
        """See ``Server``."""
        context = self.process.context.copy()
        context.run(answering.set, call)
        task = context.run(asyncio.create_task, self._answer(call, request))
        call.on_cancel = task.cancel
        if call.deadline is not None:
            asyncio.get_running_loop().call_at(call.deadline, call.cancel)

    async def close(self) -> None:
        """Leave the mesh."""
        if self._follower is not None:
            await self._follower.close()
        for pool in self.pools:
            await pool.close()

    async def _start(self) -> None:
        targets = TargetRegistry()
        listed, names = self._addresses, self._addresses.names
        self.pools = [
            Pool(
                *(role, service, addresses, admit, _Channels(self._network)),
                names=[str(VERIFIERS)] if names and role == "verifier" else (),
                dispensable=role != "verifier",
            )
            for role, service, addresses, admit in (
                ("verifier", Verifier.service, listed.verifiers, targets.admit_verifier),
                ("drafter", Drafter.service, listed.drafters, targets.admit_drafter),
                ("confidence_service", Confidence.service, listed.filters, None),
            )
        ]
        if names is not None:
            self._follower = Follower(self.pools[0], ENTRIES, names.look_up, rng=self._dice)
        store, shared = None, None
        if self._redis is not None:
            client: Any = Client(self._redis, answering.get)
            store, shared = SessionStore(client), SharedHolders(PrefixDirectory(client))
        holders = PrefixHolders(shared=shared)
        mesh = ReplicaPools(*self.pools, rng=self._dice, holders=holders)
        targets.follow(mesh.verifiers, mesh.drafters)
        servicer = GenerationServicer(mesh, targets, store, Defaults("speculative"), self._prompts)
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(servicer, self)  # type: ignore[arg-type]
        await self._intercept()
        await mesh.verifiers.wait_ready()
        self._network.listen(self.address, self)

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """See ``grpc.aio.Server``."""

    def add_registered_method_handlers(
        self, service: str, handlers: dict[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """See ``grpc.aio.Server``."""
        for name, handler in handlers.items():
            self._handlers[f"/{service}/{name}"] = handler

    async def _intercept(self) -> None:
        interceptor = CallInterceptor()
        for method, handler in list(self._handlers.items()):
            details: Any = _Details(method)
            found = await interceptor.intercept_service(_continuing(handler), details)
            assert found is not None
            self._handlers[method] = found

    async def _answer(self, call: ServerCall, request: bytes | None) -> None:
        handler: Any = self._handlers[call.method]
        context = _Context(call, handler)
        try:
            message = handler.request_deserializer(request)
            if handler.response_streaming:
                await handler.unary_stream(message, context)
            else:
                await context.write(await handler.unary_unary(message, context))
        except grpc.aio.AbortError:
            pass
        except asyncio.CancelledError:
            context.status = CANCELLED
        except Exception as error:
            context.status = Status(grpc.StatusCode.UNKNOWN, repr(error))
        call.end(context.status)


class _Channels:
    """Channels of the network."""

    version = None

    def __init__(self, network: Network) -> None:
        self._network = network

    def open(self, address: str, *, calm: bool = False) -> Any:
        return self._network.channel(address)


@dataclass(frozen=True, slots=True)
class _Details:
    method: str
    invocation_metadata: tuple[tuple[str, str], ...] = ()


def _continuing(handler: Any) -> Callable[..., Awaitable[Any]]:
    async def continued(details: Any) -> Any:
        return handler

    return continued


class _Context:
    """A ``grpc.aio.ServicerContext``, as far as our handlers use it."""

    def __init__(self, call: ServerCall, handler: Any) -> None:
        self._call = call
        self._write = handler.response_serializer
        self.status = OK

    async def send_initial_metadata(self, initial_metadata: tuple[()]) -> None:
        """Send none, which no reader of a schedule waits for."""

    async def write(self, message: Any) -> None:
        """Send a message."""
        self._call.reply(self._write(message))

    async def abort_with_status(self, status: Any) -> None:
        """End the call so."""
        self.status = Status(status.code, status.details, tuple(status.trailing_metadata))
        raise grpc.aio.AbortError

    def time_remaining(self) -> float | None:
        """Seconds until the deadline, if there is one."""
        if self._call.deadline is None:
            return None
        return max(0.0, self._call.deadline - asyncio.get_running_loop().time())

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """None."""
        return ()

    def peer(self) -> str:
        """Who calls."""
        return "schedule"
