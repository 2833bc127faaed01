"""A real Redis for the tests."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.serving.acl import PASSWORD, USER, rules

from specmesh.cli.local.redis import redis_binary


class RedisServer:
    """A Redis process on its own port; what it stored survives a restart. ``url`` is for whoever
    may do all; the product has ``as_documented(url)``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"

    def start(self, *more: str) -> None:
        """Start it, with ``more`` options, and return once it accepts commands."""
        options = f"--bind 127.0.0.1 --port {self.port} --appendonly yes --appendfsync no"
        user = ("--user", USER, "on", f">{PASSWORD}", *rules("*"))
        self._process = subprocess.Popen(
            [redis_binary(), *options.split(), "--save", "", *user, *more],
            cwd=self._folder,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        log = []
        for line in self._process.stdout:
            log.append(line)
            if b"ready to accept connections" in line.lower():
                return
        raise RuntimeError(f"Redis did not start: {b''.join(log).decode()}")

    def start_empty(self) -> None:
        """Start it without what it stored."""
        for path in sorted(self._folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self.start()

    def kill(self) -> None:
        """Kill it as a lost machine would: no goodbye, nothing flushed."""
        if self._process is not None:
            with self._process as process:
                process.kill()
            self._process = None

    def pause(self) -> None:
        """Let it hang: it holds its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The server that tests share; they keep apart by their session ids."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def start_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], RedisServer]]:
    """Starts servers of the test's own, which it may kill and pause."""
    servers = []

    def start() -> RedisServer:
        server = RedisServer(tmp_path_factory.mktemp("redis"))
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.kill()
