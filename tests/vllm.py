"""Replicas that vLLM computes for: processes in vLLM's environment, tested from ours."""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path

import pytest
from tests.e2e.processes import Process, launch
from tests.forks import surroundings

from specmesh import models

PYTHON = Path(__file__).parents[1] / ".venv-vllm/bin/python"
needs_vllm = pytest.mark.skipif(not PYTHON.exists(), reason="needs vLLM: make setup-vllm")

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


CACHE = ("--cache-bytes", str(6 << 20))
"""1,200 tokens of the shipped target: its context, and far fewer than the calls of a test hold
together."""


@cache
def shared_replica(role: str = "verifier") -> Process:
    """The one for all tests that do it no harm; started once, for that takes long."""
    started = start_vllm(*CACHE, role=role)
    atexit.register(started.kill)
    return started
