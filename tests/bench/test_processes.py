"""Ctrl-C of a command whose work is spread over processes is silent, from the first moment on."""

import subprocess
import sys

INTERRUPTED_WHILE_IMPORTING = """
import os, signal
from concurrent.futures.process import BrokenProcessPool

from specmesh.tools.kit.processes import processes

if __name__ == "__mp_main__":  # imported by a process that starts
    signal.raise_signal(signal.SIGINT)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job has it ignored
    try:
        with processes(2) as pool:
            pool.submit(sum, [1]).result()
    except BrokenProcessPool:
        print("ended")
"""


def test_processes_that_still_start_are_interrupted_without_a_traceback(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED_WHILE_IMPORTING)
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("ended\n", "")
