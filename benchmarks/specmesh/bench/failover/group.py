"""A Redis that Sentinel watches: a primary, two replicas and three Sentinels as processes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from specmesh.cli.local.process import ProcessSpec
from specmesh.cli.local.redis import redis_binary
from specmesh.cli.local.supervisor import Supervisor

SERVICE = "mesh"
NUM_SERVERS = 3
NUM_SENTINELS = 3
_QUORUM = 2
_FAILOVER_TIMEOUT_MS = 3000
_START_TIMEOUT_S = 20.0
_POLL_S = 0.05
_ANSWER_S = 0.2
_LOW_PORTS = range(20_000, 32_000)
"""Ports below those that the kernel gives to clients: a client that dials a dead server's port from
that very port would connect to itself."""


class SentinelGroup:
    """A Sentinel group that runs during an ``async with`` block; ``url`` is for ``REDIS_URL``.

    A server is considered down when it has not answered for ``down_after_ms``. Entering raises
    StartError.
    """

    def __init__(self, directory: Path, down_after_ms: int, report: Callable[[str], None]) -> None:
        ports = _free_ports(NUM_SERVERS + NUM_SENTINELS)
        self._servers, self._sentinels = ports[:NUM_SERVERS], ports[NUM_SERVERS:]
        sentinels = ",".join(f"127.0.0.1:{port}" for port in self._sentinels)
        self.url = f"redis+sentinel://{sentinels}/{SERVICE}"
        self._down_after_ms = down_after_ms
        self._directory = directory
        self._supervisor = Supervisor(
            directory, start_timeout_s=_START_TIMEOUT_S, stop_timeout_s=0.0, report=report
        )
        self._restarting: set[asyncio.Task[None]] = set()
        self._clients: dict[int, Redis] = {}
        self._exit_stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            await self._supervisor.start(*map(self._server, self._servers))
            await self._supervisor.start(*map(self._sentinel, self._sentinels))
            async with asyncio.timeout(_START_TIMEOUT_S):
                await _until(self._knows_itself)
            self._exit_stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._exit_stack.aclose()

    async def primary(self) -> int:
        """Return the port that most Sentinels name, 0 if they don't agree."""
        named = await asyncio.gather(*map(self._named_by, self._sentinels))
        return max((port for port in set(named) if named.count(port) >= _QUORUM), default=0)

    async def replaced(self, port: int) -> int:
        """Wait until a server other than the one at ``port`` is the primary and takes writes;
        return its port."""
        found = port

        async def is_replaced() -> bool:
            nonlocal found
            found = await self.primary()
            return found not in (0, port) and await self._role(found) == "master"

        await _until(is_replaced)
        return found

    def freeze(self, port: int) -> None:
        """Stop a server, which keeps its connections open and answers nothing."""
        self._supervisor.send(_name(port), signal.SIGSTOP)

    def thaw(self, port: int) -> None:
        """Resume a frozen server, which considers itself the primary until told otherwise."""
        self._supervisor.send(_name(port), signal.SIGCONT)

    def kill(self, port: int, back_after_s: float) -> None:
        """Kill a server, as if its machine were lost, and restart it ``back_after_s`` later."""
        back = self._supervisor.end_and_restart(_name(port), signal.SIGKILL, back_after_s)
        task = asyncio.create_task(back)
        self._restarting.add(task)
        task.add_done_callback(self._restarting.discard)

    async def _knows_itself(self) -> bool:
        """Return whether both replicas follow the primary and all Sentinels know each other."""
        states = [await self._ask(port, "SENTINEL", "MASTER", SERVICE) for port in self._sentinels]
        info = await self._info(self._servers[0])
        return (
            all(
                state is not None
                and _pairs(state)["num-other-sentinels"] == str(NUM_SENTINELS - 1)
                and _pairs(state)["num-slaves"] == str(NUM_SERVERS - 1)
                for state in states
            )
            and info.get("connected_slaves") == NUM_SERVERS - 1
            and all(info[f"slave{n}"]["state"] == "online" for n in range(NUM_SERVERS - 1))
        )

    async def _role(self, port: int) -> str:
        return str((await self._info(port)).get("role", ""))

    async def _info(self, port: int) -> Mapping[str, Any]:
        return await self._ask(port, "INFO", "replication") or {}

    async def _named_by(self, port: int) -> int:
        named = await self._ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return int(named[1]) if named else 0

    async def _ask(self, port: int, *command: str) -> Any:
        """Return the reply; None if there is none."""
        if port not in self._clients:
            self._clients[port] = Redis(
                port=port,
                socket_timeout=_ANSWER_S,
                retry=Retry(NoBackoff(), 0),
                decode_responses=True,
                protocol=2,
            )
        try:
            return await self._clients[port].execute_command(*command)  # type: ignore[no-untyped-call]
        except (RedisError, OSError):
            return None

    async def _close(self) -> None:
        for task in self._restarting:
            task.cancel()
        for client in self._clients.values():
            with contextlib.suppress(RedisError, OSError):
                await client.aclose()
        self._supervisor.kill()
        await self._supervisor.stop()

    def _server(self, port: int) -> ProcessSpec:
        primary = self._servers[0]
        options = {
            "--dir": str(_folder(self._directory, port)),
            "--bind": "127.0.0.1",
            "--save": "",
            "--appendonly": "yes",
            "--appendfsync": "everysec",
            "--min-replicas-to-write": "1",
            "--min-replicas-max-lag": "2",
            "--repl-diskless-sync-delay": "0",
        }
        if port != primary:
            options["--replicaof"] = f"127.0.0.1 {primary}"
        arguments = [part for option in options.items() for part in option]
        return self._spec(port, ("--port", str(port), *arguments), "eady to accept connections")

    def _sentinel(self, port: int) -> ProcessSpec:
        config = _folder(self._directory, port) / "sentinel.conf"
        config.write_text(
            f"port {port}\n"
            "bind 127.0.0.1\n"
            f"dir {config.parent}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self._servers[0]} {_QUORUM}\n"
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after_ms}\n"
            f"sentinel failover-timeout {SERVICE} {_FAILOVER_TIMEOUT_MS}\n"
        )
        return self._spec(port, (str(config), "--sentinel"), "+monitor")

    def _spec(self, port: int, arguments: Sequence[str], ready: str) -> ProcessSpec:
        return ProcessSpec(
            name=_name(port),
            command=(redis_binary(), *arguments),
            ready=lambda line: f"127.0.0.1:{port}" if ready in line else None,
        )


def _name(port: int) -> str:
    return f"redis-{port}"


def _folder(directory: Path, port: int) -> Path:
    folder = directory / _name(port)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _pairs(flat: Any) -> Mapping[str, str]:
    """Return a reply of alternating names and values as a mapping, unless redis-py has already made
    one."""
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found: set[int] = set()
        while len(found) < number:
            port = random.choice(_LOW_PORTS)  # noqa: S311 - nothing secret
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                found.add(port)
        return list(found)


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    # The servers don't notify anybody of these changes.
    while not await holds():  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)
