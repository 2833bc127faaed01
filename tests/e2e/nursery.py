"""Forks the services of a mesh: python -P nursery.py FD

Half of the time that a service takes to start, and with a model nine tenths of it, it imports what
it needs. Here that is done once. What runs then is what ``python -m`` runs, with a command line, an
environment and an output of its own; gRPC, threads and all else begin in it alone.
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
from importlib import import_module

PR_SET_PDEATHSIG = 1
MODEL_MODULE = "specmesh.inference.models.transformers_model"
MAX_MESSAGE_BYTES = 1 << 18


def prepare(module: str, arguments: Sequence[str]) -> None:
    """Import what the service will."""
    import_module(f"{module}.__main__")
    if "--model" in arguments:
        import_module(MODEL_MODULE)
    gc.freeze()


def become(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], output: int
) -> None:
    """Run as ``python -m MODULE ARGUMENT...`` in a process that was forked for it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    del sys.modules[f"{module}.__main__"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main(asked: socket.socket) -> None:
    """Answer with the process ids of those forked and the exit statuses of those ended, until
    nobody is there to ask."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, MAX_MESSAGE_BYTES, 1)
        if not message:
            return
        fields = json.loads(message)
        if "ended" in fields:
            _, status = os.waitpid(fields["ended"], 0)
            asked.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
            continue
        prepare(fields["module"], fields["arguments"])
        child = os.fork()
        if not child:
            asked.close()
            become(**fields, output=descriptors[0])
            return
        os.close(descriptors[0])
        asked.send(json.dumps(child).encode())


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
