"""Whom the suite is run on: our engine, the simulated one and vLLM, or ``--replica HOST:PORT``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from tests.conformance.engines import FEW_CASES, Engine, engine_at, load, roles_at, simulated
from tests.devices import device
from tests.e2e.processes import Processes
from tests.vllm import CACHE, address_of, needs_vllm, shared_replica

from specmesh import models

ENGINES = {"ours": (), "simulated": (), "vllm": needs_vllm}
SHIPPED = {"verifier": models.path(models.TARGET), "drafter": models.path(models.DRAFTER)}
PREFILL = ("--simulated-prefill-ms", "0.1")
"""Else nobody could tell that a call was taken out of a queue."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--replica", metavar="HOST:PORT", help="an engine to try, and no other")
    parser.addoption("--model", metavar="FOLDER", help="its model, if that isn't the shipped one")
    parser.addoption("--engine", choices=ENGINES, help="the only one to try of those known here")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for role in SHIPPED:
        if role in metafunc.fixturenames:
            chosen = list(_engines(metafunc.config))
            metafunc.parametrize(role, chosen, indirect=True, scope="session")


def _engines(config: pytest.Config) -> Iterator[object]:
    if config.getoption("--replica", None):
        yield "replica"
        return
    for name, marks in ENGINES.items():
        if config.getoption("--engine", None) in {None, name}:
            yield pytest.param(name, marks=marks)


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.fixture(scope="session")
def verifier(request: pytest.FixtureRequest, processes: Processes) -> Engine:
    """A replica of a target."""
    return find(request, processes, "verifier")


@pytest.fixture(scope="session")
def drafter(request: pytest.FixtureRequest, processes: Processes) -> Engine:
    """A drafter."""
    return find(request, processes, "drafter")


def find(request: pytest.FixtureRequest, processes: Processes, role: str) -> Engine:
    match request.param:
        case "replica":
            folder = Path(request.config.getoption("--model", None) or SHIPPED[role])
            address = request.config.getoption("--replica")
            if role not in roles_at(address):
                pytest.skip(f"there is no {role} at {address}")
            return engine_at(address, role, load(folder))
        case "vllm":
            return engine_at(address_of(shared_replica(role)), role, load(SHIPPED[role]))
        case "ours":
            flags = ("--model", str(SHIPPED[role]), "--device", device(), *CACHE)
            process = processes.service(role, *flags)
            return engine_at(process.address, role, load(SHIPPED[role]), FEW_CASES)
        case "simulated":
            process = processes.service(role, "--backend", "simulated", *PREFILL)
            return engine_at(process.address, role, simulated(role), FEW_CASES)
    raise AssertionError(request.param)


@pytest.fixture
async def channel(verifier: Engine) -> AsyncIterator[grpc.aio.Channel]:
    """To the replica."""
    async with grpc.aio.insecure_channel(verifier.address) as opened:
        yield opened


@pytest.fixture
async def draft_channel(drafter: Engine) -> AsyncIterator[grpc.aio.Channel]:
    """To the drafter."""
    async with grpc.aio.insecure_channel(drafter.address) as opened:
        yield opened
