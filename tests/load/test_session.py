"""What a command does around its runs."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

import pytest
from tests.load.conftest import workload

from specmesh.load.commands.options import ResultOptions
from specmesh.load.commands.session import RunSession
from specmesh.load.generators import fleet
from specmesh.load.runs.conduct import RunPlan
from specmesh.load.transports.mesh_transport import MeshDoor
from specmesh.load.transports.transport import RequestFailed
from specmesh.load.workload.conversations import Conversation, Listed, Turn

SCRIPT = "from specmesh.cli.main import main; main()"
LISTED = Listed((Conversation((Turn("hello"),)),))


def test_ctrl_c_ends_a_run_that_is_still_connecting():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        arguments = ("load", "run", "--rate", "1", "--target", target)
        child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *arguments], stderr=subprocess.PIPE, text=True
        )
        try:
            silent.settimeout(30)
            with silent.accept()[0]:
                child.send_signal(signal.SIGINT)
                _, said = child.communicate(timeout=30)
        finally:
            child.kill()
            child.wait()
    assert child.returncode == 130
    assert "interrupted before anything was sent" in said


async def test_ctrl_c_ends_a_run_whose_generators_are_still_starting(monkeypatch):
    async def begin(_):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr(fleet._Worker, "begin", begin)
    door = MeshDoor(("127.0.0.1:1",), model="m")
    session = RunSession(ResultOptions())
    with pytest.raises(RequestFailed, match="interrupted before anything was sent"):
        async with asyncio.timeout(20):
            await session.run(RunPlan(workload=workload(conversations=LISTED), door=door), "")
    assert session.stopped
