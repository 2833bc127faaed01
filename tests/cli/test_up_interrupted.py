"""``specmesh up`` that is interrupted, with a mesh that only seems to start."""

import asyncio
import os
import signal

import pytest
from typer.testing import CliRunner

from specmesh.cli import up
from specmesh.cli.app import app
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.traces import COLLECTOR


class SeemingMesh:
    """A mesh without processes, during whose start, or after it, the user presses Ctrl-C."""

    is_interrupted_first = False

    def __init__(self, *_, **__):
        self.address = ""
        self.pids = self.addresses = {}

    async def __aenter__(self):
        os.kill(os.getpid(), signal.SIGINT)
        if self.is_interrupted_first:
            await asyncio.Event().wait()
        self.address = "127.0.0.1:1"
        return self

    async def __aexit__(self, *_):
        pass

    def kill(self):
        pass


def test_the_command_that_shows_a_trace_names_the_store_that_was_chosen(monkeypatch):
    class TracedMesh(SeemingMesh):
        async def __aenter__(self):
            self.pids, self.addresses = {COLLECTOR: 1}, {COLLECTOR: "127.0.0.1:2"}
            return await super().__aenter__()

    monkeypatch.setattr(up, "LocalMesh", TracedMesh)
    for given, told in ((["--store", "my traces"], "last --store 'my traces'  #"), ([], "last  #")):
        done = CliRunner().invoke(app, ["up", "--port", "0", *given])
        assert f"specmesh trace show {told}" in done.output


@pytest.mark.parametrize(
    ("is_interrupted_first", "status", "last"),
    [
        (True, ExitStatus.INTERRUPTED, "specmesh: interrupted; the mesh was not up\n"),
        (False, ExitStatus.OK, "the mesh is down\n"),
    ],
)
def test_only_a_mesh_that_was_up_ends_well(monkeypatch, is_interrupted_first, status, last):
    monkeypatch.setattr(SeemingMesh, "is_interrupted_first", is_interrupted_first)
    monkeypatch.setattr(up, "LocalMesh", SeemingMesh)
    done = CliRunner().invoke(app, ["up", "--port", "0", "--trace", "off"])
    assert done.exit_code == status
    assert done.output.endswith(last)
