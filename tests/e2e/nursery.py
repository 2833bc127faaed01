"""Orchestrators that are back in no time: python -m tests.e2e.nursery PORT,PORT FLAG...

Imports what an orchestrator needs once, and forks one for each port, again whenever one ends. gRPC
begins in the children alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys

import specmesh.orchestrator.__main__  # noqa: F401 - what takes long is done before the fork

PR_SET_PDEATHSIG = 1


def serve(port: int, flags: list[str]) -> int:
    """Fork an orchestrator; its process id."""
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        del sys.modules["specmesh.orchestrator.__main__"]
        sys.argv = ["orchestrator", "--port", str(port), *flags]
        runpy.run_module("specmesh.orchestrator", run_name="__main__", alter_sys=True)
        os._exit(0)
    line = {"event": f"forked {port}", "pid": child}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    return child


def main() -> None:
    """Until it is ended itself."""
    flags = sys.argv[2:]
    ports = {serve(int(port), flags): int(port) for port in sys.argv[1].split(",")}
    while True:
        ended, _ = os.wait()
        port = ports.pop(ended)
        ports[serve(port, flags)] = port


if __name__ == "__main__":
    main()
