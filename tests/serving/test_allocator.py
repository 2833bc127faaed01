"""Memory that is free again goes back to the system, whichever thread allocated it."""

from __future__ import annotations

import subprocess
import sys

import pytest

MIB = 2**20
PROCESS = """
import asyncio, threading
from pathlib import Path
from specmesh.serving.process import resources

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def work():
    bytes(16 * 2**20)  # freeing that raises glibc's threshold for giving memory back by itself
    _ = [b"x" * 2**16 for _ in range(480)]

async def main():
    resources.use_one_heap()
    resources.PERIOD_SECONDS = 0.01
    threading.Thread(target=lambda: None).start()
    before = resident_bytes()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    kept = resident_bytes() - before
    giving_back = asyncio.create_task(resources.give_memory_back())
    for _ in range(200):
        await asyncio.sleep(0.01)
        if resident_bytes() - before < kept / 4:
            break
    giving_back.cancel()
    print(kept, resident_bytes() - before)

asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, tries glibc")
def test_what_a_thread_has_freed_goes_back():
    ran = subprocess.run(
        [sys.executable, "-c", PROCESS], capture_output=True, text=True, check=True, timeout=60
    )
    kept, left = map(int, ran.stdout.split())
    assert kept > 16 * MIB, "nothing to give back: the test tries nothing"
    assert left < 4 * MIB
