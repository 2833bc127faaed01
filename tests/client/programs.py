"""Programs that use the synchronous client, each in a process of its own."""

import os
import signal
import subprocess
import sys
from contextlib import suppress


def run_program(program):
    """The lines that it prints; whatever it has started ends with it."""
    status, printed, errors = ended_program(program)
    assert status == 0, errors
    return printed.splitlines()


def ended_program(program):
    """Its exit status, and what it has written to standard output and standard error."""
    process = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, errors = process.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, printed, errors


PREAMBLE = """
import os, signal, subprocess, sys, threading
from specmesh.client import Client
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job has it ignored
"""

# The mesh is another process: gRPC's own threads, which serve, do not survive a fork.
MESH = """
import sys
from specmesh.client.background import Background
from specmesh.client.testing import FakeMesh
with FakeMesh() as mesh:
    mesh.answer("a first answer")
    mesh.answer("one ", "two ", "three ", "four")
    mesh.answer("a second answer")
    mesh.answer("yet another")
    print(mesh.address, flush=True)
    sys.stdin.read()
"""
