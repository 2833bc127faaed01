"""Local meshes, as commands start them, of services that a nursery forks."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest
from tests.forks import Forked, nursery

from specmesh.cli.local import launcher


class Child:
    """A forked service with what ``asyncio.subprocess.Process`` has of use here."""

    def __init__(self, forked: Forked, stdout: asyncio.StreamReader) -> None:
        self.pid = forked.pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._forked = forked
        loop = asyncio.get_running_loop()
        self._status: asyncio.Future[int] = loop.create_future()
        loop.add_reader(forked, self._end)

    async def wait(self) -> int:
        """Its exit status once it has ended."""
        return await asyncio.shield(self._status)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._forked)
        self.returncode = self._forked.wait(0)
        self._status.set_result(self.returncode)


async def _fork(command: tuple[str, ...], cores: str, environment: Mapping[str, str]) -> Child:
    """``python -P -m MODULE ARGUMENT...``, as the launcher would start it."""
    mine, theirs = os.pipe()
    with open(os.devnull, "rb") as nothing, os.fdopen(theirs, "wb") as output:  # noqa: ASYNC230
        streams = (nothing.fileno(), output.fileno(), output.fileno())
        _, _, _, module, *arguments = command
        forked = await asyncio.to_thread(nursery().fork, module, arguments, environment, streams)
    if cores:
        os.sched_setaffinity(forked.pid, map(int, cores.split(",")))
    stdout = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(mine, "rb")
    )
    return Child(forked, stdout)


def forking(
    execute: Callable[..., Coroutine[Any, Any, Process]],
) -> Callable[..., Coroutine[Any, Any, Process | Child]]:
    """``asyncio.create_subprocess_exec`` that has our services forked; the rest it leaves to
    ``execute``."""

    async def create(*command: str, **options: Any) -> Process | Child:
        if command[2:3] == (launcher.__file__,):
            _, _, _, _, cores, _, *program = command
            if program[:3] == [sys.executable, "-P", "-m"]:
                return await _fork(tuple(program), cores, options["env"])
        return await execute(*command, **options)

    return create


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the services of local meshes forked."""
    nursery()  # before it is looked for what a test has left
    monkeypatch.setattr(asyncio, "create_subprocess_exec", forking(asyncio.create_subprocess_exec))
