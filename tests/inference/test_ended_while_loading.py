"""SIGTERM ends a replica while its model is loaded, and while its packages are imported."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.e2e.processes import Process, launch
from tests.forks import surroundings

SCRIPT = Path(__file__).parent / "loading_verifier.py"
LONGEST_S = 10.0
"""Tells a load that was broken off, within tenths of a second, from one that was waited for."""


def test_a_load_is_broken_off():
    process = Process(
        "loading",
        launch([sys.executable, str(SCRIPT), "--model", "any", "--port", "0"], surroundings()),
    )
    try:
        process.wait_event("loading")
        began = time.monotonic()
        process.send(signal.SIGTERM)
        assert process.wait_exit() == 0
        assert time.monotonic() - began < LONGEST_S
        process.wait_event("stopped", exit_status=0)
    finally:
        process.kill()


def test_a_process_that_still_imports_has_a_handler():
    """Of its own: the first process of a container has no other."""
    command = [Path(sys.executable).with_name("specmesh"), "serve", "verifier", "--model", "none"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: handles(process.pid, signal.SIGTERM))
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONGEST_S) == 0
        assert process.stderr.read() == b""  # it had not begun
    finally:
        process.kill()
        process.stderr.close()


def wait_for(holds):
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def handles(pid, number):
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(caught, 16) >> (number - 1) & 1)
