"""Benchmarks whose mesh can't be reached any more end with one line that says so."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from specmesh.bench import plan_check
from specmesh.bench.load import __main__ as load
from specmesh.bench.overload import __main__ as overload
from specmesh.load.transports.transport import RequestFailed


async def fails(*_arguments, **_options):
    raise RequestFailed("UNAVAILABLE", "no orchestrator answers")


@asynccontextmanager
async def nothing(*_arguments):
    yield SimpleNamespace(kill=lambda: None)


@pytest.fixture(autouse=True)
def _gone(monkeypatch):
    monkeypatch.setattr(plan_check, "_measure", fails)
    monkeypatch.setattr(load.speeds, "measure", fails)
    monkeypatch.setattr(overload, "measure", fails)
    monkeypatch.setattr(overload, "running", nothing)


@pytest.mark.parametrize(
    ("app", "arguments"),
    [
        (plan_check.app, ["--strategy", "autoregressive"]),
        (load.app, ["speed"]),
        (overload.app, ["--simulated"]),
    ],
    ids=["plan", "load", "overload"],
)
def test_it_is_said_in_one_line_with_a_failing_status(app, arguments):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert "specmesh: no orchestrator answers [UNAVAILABLE]\n" in done.stderr
    assert isinstance(done.exception, SystemExit)
