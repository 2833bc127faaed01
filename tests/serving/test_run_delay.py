"""What a thread waited for a core, beside what it would have been without others."""

import os
import sys
import threading
import time
from subprocess import PIPE, Popen

import pytest

from specmesh.serving.process.run_delay import run_delay_s

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux counts it")

SECONDS = 0.2


SPIN = f"""
import os, sys, time
from specmesh.serving.process.run_delay import run_delay_s
os.sched_setaffinity(0, {{int(sys.argv[1])}})
print("ready", flush=True)
time.sleep(max(0.0, float(input()) - time.monotonic()))
before, until = run_delay_s(), time.monotonic() + {SECONDS}
while time.monotonic() < until:
    pass
print(run_delay_s() - before)
"""


def test_two_processes_on_one_core_wait_for_each_other():
    command = [sys.executable, "-c", SPIN, str(min(os.sched_getaffinity(0)))]
    spinners = [Popen(command, stdin=PIPE, stdout=PIPE, text=True) for _ in range(2)]
    for spinner in spinners:
        assert spinner.stdout.readline() == "ready\n"
    start = f"{time.monotonic() + SECONDS}\n"
    for spinner in spinners:
        spinner.stdin.write(start)
        spinner.stdin.flush()
    waited = [float(spinner.communicate()[0]) for spinner in spinners]
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
