"""Forks services: python -P nursery.py FD

Half of the time that a service takes to start, and with a model nine tenths of it, it imports what
it needs. Here that is done once. What runs then is what ``python`` runs, with a command line, an
environment and streams of its own; gRPC, threads and all else begin in it alone.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module

PR_SET_PDEATHSIG = 1
MODEL_MODULE = "specmesh.inference.models.transformers_model"
NUM_STREAMS = 3
MAX_MESSAGE_BYTES = 1 << 18


@cache
def prepare(program: str, *, with_model: bool) -> None:
    """Import what the program will, without collections, for nothing of it is garbage."""
    run(program, "prepared")
    if with_model:
        import_module(MODEL_MODULE)
    gc.freeze()


def run(program: str, name: str) -> None:
    """Run a module, or a script by its path, as ``name``."""
    if program.endswith(".py"):
        runpy.run_path(program, run_name=name)
    else:
        runpy.run_module(program, run_name=name, alter_sys=True)


def become(
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    streams: Sequence[int],
) -> None:
    """Run a program in a process that was forked for it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [program, *arguments]
    gc.enable()
    run(program, "__main__")


def main(asked: socket.socket) -> None:
    """Answer with the process ids of those forked and the exit statuses of those ended, until
    nobody is there to ask."""
    while True:
        message, streams, _, _ = socket.recv_fds(asked, MAX_MESSAGE_BYTES, NUM_STREAMS)
        if not message:
            return
        fields = json.loads(message)
        if "ended" in fields:
            _, status = os.waitpid(fields["ended"], 0)
            asked.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
            continue
        prepare(fields["program"], with_model="--model" in fields["arguments"])
        child = os.fork()
        if not child:
            asked.close()
            become(**fields, streams=streams)
            return
        for stream in streams:
            os.close(stream)
        asked.send(json.dumps(child).encode())


if __name__ == "__main__":
    gc.disable()
    main(socket.socket(fileno=int(sys.argv[1])))
