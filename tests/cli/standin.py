"""A process that behaves like a server of the mesh, without a model.

``standin.py [--port N] [--fail MESSAGE] [--refuse REASON] [--warn REASON] [--stubborn] [--silent]``
logs what it was started with, and when it was told to end.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--fail", help="end with this complaint instead of serving")
parser.add_argument("--refuse", help="say that it cannot start for this reason, and end")
parser.add_argument("--warn", help="log a warning, twice, and an error once it serves")
parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
parser.add_argument("--silent", action="store_true", help="never say that it serves")
options = parser.parse_args()


def log(event, level="info", **fields):
    sys.stderr.write(json.dumps({"level": level, "event": event, **fields}) + "\n")


def end(*_):
    log("ending", at=time.monotonic())
    sys.exit(0)


signal.signal(signal.SIGTERM, signal.SIG_IGN if options.stubborn else end)
log("starting", cores=sorted(os.sched_getaffinity(0)), threads=os.environ.get("OMP_NUM_THREADS"))
if options.fail:
    log("failed", exception=options.fail)
    sys.exit(3)
if options.refuse:
    log("trying again", level="warning", reason=options.refuse)
    log("cannot start", level="error", reason=options.refuse)
    sys.exit(1)
listener = socket.create_server(("127.0.0.1", options.port))
if not options.silent:
    log("serving", address=f"127.0.0.1:{listener.getsockname()[1]}")
if options.warn:
    log("odd", level="warning", reason=options.warn)
    log("odd", level="warning", reason=options.warn)
    log("refused", level="error", reason=options.warn, exception="of many\nlines")
while True:
    signal.pause()
