"""What all tests share."""

from __future__ import annotations

import gc
import os
import sys

import pytest
from hypothesis import settings
from tests import devices

# There are tests at once for all cores: more threads than that wait for one another, and spin.
# Read when torch and numpy are first imported, here and in the processes that tests start.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

gc.disable()  # until all is imported: nothing of it is garbage

# Elsewhere every run explores new cases; CI repeats the same ones, so that it judges the
# change and not the dice. No deadlines: machines are shared.
settings.register_profile("explore", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "explore")

LONGEST_FIRST = (
    "tests/e2e",
    "tests/bench/chaos/test_half_a_minute",
    "tests/schedules",
    "tests/install",
    "tests/inference",
    "tests/conformance",
    "tests/orchestrator/test_strategy",
    "tests/orchestrator/test_filter_law",
    "tests/simulation/test_properties",
    "tests/training",
    "tests/bench",
    "tests/cli",
    "tests/k8s/test_policies",
    "tests/k8s/test_redis",
    "tests/k8s/test_schemas",
)
"""Where files take long: none of them may be what the last of several workers is left with."""

SLOW = (
    "tests/bench/chaos/test_half_a_minute",
    "tests/bench/plan/test_profiled",
    "tests/bench/simulate/test_modes",
    "tests/bench/simulate/test_offline_study",
    "tests/bench/simulate/test_papers_tables",
    "tests/bench/test_calibrate",
    "tests/bench/test_capacity.py::test_a_short_run",
    "tests/bench/test_commands",
    "tests/bench/test_crowd.py::test_crowds_of_real_processes",
    "tests/bench/test_demo",
    "tests/bench/test_engine.py",
    "tests/bench/test_failover",
    "tests/bench/test_grammar.py::test_a_mesh_is_asked",
    "tests/bench/test_grammar.py::test_two_hundred_schemas",
    "tests/bench/test_heads",
    "tests/bench/test_load",
    "tests/bench/test_mesh",
    "tests/bench/test_overload.py::test_a_short_run",
    "tests/bench/test_vocabulary",
    "tests/cli/page/test_browser",
    "tests/decoding/test_calibration.py::test_shipped_pair",
    "tests/decoding/test_tree_plan",
    "tests/e2e/test_examples",
    "tests/e2e/test_gateway_names",
    "tests/e2e/test_lost_orchestrators",
    "tests/e2e/test_profile",
    "tests/e2e/test_rollout.py::test_a_rolling_restart",
    "tests/e2e/test_version_skew",
    "tests/e2e/test_workers",
    "tests/inference/test_engine_memory",
    "tests/inference/test_tensor_parallel",
    "tests/install",
    "tests/load/test_html",
    "tests/orchestrator/test_strategy_rejection",
    "tests/schedules/test_schedules.py::test_fix_that_is_taken_out",
    "tests/simulation/test_properties",
    "tests/simulation/test_shared_cores.py::test_auto_notices_it_among_many",
    "tests/training/",
)
"""Faults by the dozen, other versions and languages, packages, pages in a browser, benchmarks that
start a mesh, studies of the simulator, training: these take nearly as long as all other tests
together, and `make test-slow` runs them."""

GARBAGE_THRESHOLD = 20_000
"""Objects that have come and not gone when the youngest are looked through; Python's own: 700."""


NEEDS_GPU = pytest.mark.skip(reason="needs a GPU: make gpu-test")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where tests load models"
    )


def pytest_configure(config: pytest.Config) -> None:
    try:
        devices.choose(config.getoption("--device"))
    except RuntimeError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        begins = [item.nodeid.startswith(path) for path in LONGEST_FIRST]
        return begins.index(True) if True in begins else len(begins)

    items.sort(key=place)
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
        if devices.device() == "cpu" and item.get_closest_marker("gpu"):
            item.add_marker(NEEDS_GPU)
        if devices.device() != "cpu" and (cpu_only := item.get_closest_marker("cpu_only")):
            item.add_marker(pytest.mark.skip(reason=f"for CPUs alone: {cpu_only.args[0]}"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("needs_vllm"):
        from tests.vllm import PYTHON

        if not PYTHON.exists():
            pytest.skip("needs vLLM: make setup-vllm")


def pytest_collection_finish() -> None:
    """What has been imported by now stays: collections, of a quarter of a second with torch, need
    not scan it. Nor need they be as many as where memory is short."""
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    gc.enable()


def pytest_sessionfinish() -> None:
    """What is left of servers uses gRPC to the last: nobody needs to wait for its end."""
    if background := sys.modules.get("specmesh.client.background"):
        background._PAUSES_S = (0.0,)
