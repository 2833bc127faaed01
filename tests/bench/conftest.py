"""The tiny models, and what commands share."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module

import pytest
from click.testing import Result
from opentelemetry import trace
from opentelemetry.util._once import Once
from tests.cli.conftest import no_process_left, target_model  # noqa: F401 - fixtures
from tests.forked_mesh import forked  # noqa: F401 - a fixture
from tests.inference.conftest import folders, load, save_tiny  # noqa: F401 - fixtures
from typer.testing import CliRunner

from specmesh.bench.programs import BENCHMARKS
from specmesh.client import telemetry
from specmesh.tools.kit import traced

PATIENCE_S = 240
"""Then a benchmark is interrupted, as by Ctrl-C."""


@pytest.fixture
def target(load):  # noqa: F811 - the fixture
    return load("llama")


@pytest.fixture
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who traces sets a provider for the whole of a process, once; here it is for a test."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(telemetry, "_tracer", trace.get_tracer("specmesh.client"))


@pytest.fixture
def bench(forked: None, untraced: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:  # noqa: F811 - the fixture
    """``specmesh bench NAME ARGUMENT...`` in this process; the services that it starts are real,
    but forked."""
    # Threads of gRPC begin in there and stay.
    monkeypatch.setattr(traced, "pinned_to", lambda _: nullcontext())
    modules = {each.name: each.module for each in BENCHMARKS}

    def run(name: str, *arguments: str) -> Result:
        module = modules[f"bench {name}"]
        found = import_module(module)
        if hasattr(found, "__path__"):
            found = import_module(f"{module}.__main__")
        interrupt = threading.Timer(PATIENCE_S, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        try:
            return CliRunner().invoke(found.app, arguments, catch_exceptions=False)
        finally:
            interrupt.cancel()

    return run
