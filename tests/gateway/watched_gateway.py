"""A gateway that tells the longest pause of its event loop at its end:
python -m tests.gateway.watched_gateway [OPTION]...

In a pause the loop is in one callback, or another thread keeps it from running. It counts as far as
this process used the processor in it, and not as far as it waited for one that others had.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from specmesh.gateway.__main__ import serve
from specmesh.gateway.settings import GatewaySettings
from specmesh.serving.process import resources
from specmesh.serving.process.command_line import parse
from specmesh.serving.process.server_loop import run

PERIOD_S = 0.002
GIVES_BACK_S = 0.5
"""Seconds between its returns of memory: a test does not wait the usual 5 s."""


async def watch(pauses: list[float]) -> None:
    """Note each pause."""
    while True:
        due_s, used_s = time.monotonic() + PERIOD_S, time.process_time()
        await asyncio.sleep(PERIOD_S)
        pauses.append(min(time.monotonic() - due_s, time.process_time() - used_s))


async def main() -> int:
    """Serve until SIGTERM; returns the exit status."""
    settings = parse(GatewaySettings, sys.argv[1:], "watched_gateway")
    resources.PERIOD_SECONDS = GIVES_BACK_S
    pauses: list[float] = []
    watching = asyncio.create_task(watch(pauses))
    status = await serve(settings)
    watching.cancel()
    sys.stdout.write(json.dumps({"event": "pauses", "longest": sorted(pauses)[-5:]}) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(run(main()))
