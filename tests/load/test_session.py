"""What a command does around its runs."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys

import pytest
from tests.load.conftest import seen, workload
from tests.load.reports import mixed_run
from typer.testing import CliRunner

from specmesh.load.__main__ import app
from specmesh.load.commands import session as sessions
from specmesh.load.commands.options import ResultOptions
from specmesh.load.commands.session import RunSession
from specmesh.load.generators import fleet
from specmesh.load.runs.conduct import FinishedRun, RunPlan
from specmesh.load.runs.servers import CannotScrape
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


SEARCH = ("search", "--from", "8", "--slo", "ttft=200ms")
SWEEP = ("sweep", "--rates", "8", "--over", "temperature=0,0.5")


@pytest.mark.parametrize("command", [SEARCH, SWEEP])
@pytest.mark.parametrize(
    ("failure", "status", "told"),
    [
        (RequestFailed("UNAVAILABLE", "it is gone"), 3, "it is gone [UNAVAILABLE]"),
        (CannotScrape("no metrics"), 1, "no metrics"),
    ],
)
def test_a_server_that_dies_ends_a_search_or_a_sweep_with_what_there_is(
    monkeypatch, tmp_path, command, failure, status, told
):
    begun = []

    async def conduct(plan, *_):
        begun.append(plan)
        if len(begun) > 1:
            raise failure
        return FinishedRun(plan, seen([]), mixed_run())

    monkeypatch.setattr(sessions, "conduct", conduct)
    files = tmp_path / "report.json", tmp_path / "report.html"
    done = CliRunner().invoke(app, [*command, "--json", str(files[0]), "--html", str(files[1])])
    assert done.exit_code == status, done.output
    assert done.stderr.endswith(f"specmesh: {told}\n")
    assert "rate/s" in done.stdout
    report = json.loads(files[0].read_text())
    assert [each["rate"] for each in report["points"]] == [8.0]
    assert report["failure"] == told
    assert f"ended early: {told}" in files[1].read_text()


def test_a_server_that_was_never_there_is_reported_as_such_alone(monkeypatch, tmp_path):
    async def conduct(*_):
        raise RequestFailed("UNAVAILABLE", "it is not there")

    monkeypatch.setattr(sessions, "conduct", conduct)
    file = tmp_path / "report.json"
    done = CliRunner().invoke(app, [*SEARCH, "--json", str(file)])
    assert (done.exit_code, done.stdout) == (3, "")
    assert not file.exists()
