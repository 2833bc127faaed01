"""Replicas that vLLM computes for: processes in vLLM's environment, tested from ours."""

from __future__ import annotations

import atexit
import subprocess
from functools import cache
from pathlib import Path

import psutil
import pytest
from tests.e2e.processes import Process, launch
from tests.forks import surroundings

from specmesh import models

PYTHON = Path(__file__).parents[1] / ".venv-vllm/bin/python"
needs_vllm = pytest.mark.needs_vllm

HAS_RAY = "import sys; from importlib.util import find_spec; sys.exit(find_spec('ray') is None)"
needs_ray = pytest.mark.skipif(
    not PYTHON.exists() or subprocess.run([PYTHON, "-c", HAS_RAY], check=False).returncode != 0,
    reason="needs Ray in vLLM's environment: see docs/vllm.md",
)

START_SECONDS = 300.0
"""To import vLLM takes 20 seconds of a core, the first time far longer."""


def start_vllm(*flags: str, role: str = "verifier", folder: Path | None = None) -> Process:
    """A replica of the model in ``folder``, or of the shipped pair, without waiting for it."""
    shipped = models.path(models.TARGET if role == "verifier" else models.DRAFTER)
    options = ("--backend", "vllm", "--model", str(folder or shipped), "--port", "0", *flags)
    command = (str(PYTHON), "-m", f"specmesh.{role}", *options)
    return Process("vllm", launch(command, surroundings()))


def address_of(replica: Process) -> str:
    """Where it serves; blocks until it does, longer than ``Process.address``."""
    return str(replica.wait_event("serving", START_SECONDS)["address"])


def workers_of(pid: int) -> list[int]:
    """vLLM's processes, below the process ``pid``; of Ray's those alone that compute for it."""
    below = psutil.Process(pid).children(recursive=True)
    commands = {each.pid: " ".join(each.cmdline()) for each in below}
    in_ray = [pid for pid, command in commands.items() if command.startswith("ray::CpuWorker")]
    return in_ray or [pid for pid, line in commands.items() if "resource_tracker" not in line]


CACHE = ("--cache-bytes", str(6 << 20))
"""1,200 tokens of the shipped target: its context, and far fewer than the calls of a test hold
together."""


@cache
def shared_replica(role: str = "verifier") -> Process:
    """The one for all tests that do it no harm; started once, for that takes long."""
    started = start_vllm(*CACHE, role=role)
    atexit.register(started.kill)
    return started
