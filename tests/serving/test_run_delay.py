"""What a thread waited for a core, beside what it would have been without others."""

import os
import sys
import threading
import time

import pytest

from specmesh.serving.run_delay import run_delay_s

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux counts it")

SECONDS = 0.2


def spun():
    """How long the process waited, while it wanted a core for ``SECONDS``."""
    before, until = run_delay_s(), time.monotonic() + SECONDS
    while time.monotonic() < until:
        pass
    return run_delay_s() - before


def in_a_child(work, core):
    """What ``work`` tells in a process of its own, pinned to ``core``."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {core})
        os.write(writer, str(work()).encode())
        os._exit(0)
    os.close(writer)
    return child, reader


def told(child, reader):
    with os.fdopen(reader) as text:
        answer = float(text.read())
    os.waitpid(child, 0)
    return answer


def test_two_processes_on_one_core_wait_for_each_other():
    core = min(os.sched_getaffinity(0))
    children = [in_a_child(spun, core) for _ in range(2)]
    waited = [told(*child) for child in children]
    assert min(waited) > SECONDS / 4  # each has half of the core at most


def test_a_thread_that_sleeps_waits_for_no_core():
    before = run_delay_s()
    time.sleep(SECONDS)
    assert run_delay_s() - before < SECONDS / 2


def test_each_thread_counts_its_own():
    waited = []
    thread = threading.Thread(target=lambda: waited.append(run_delay_s()))
    before = run_delay_s()
    thread.start()
    thread.join()
    assert waited[0] <= before + SECONDS
