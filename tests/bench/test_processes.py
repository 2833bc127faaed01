"""Ctrl-C of a command whose work is spread over processes is silent, from the first moment on."""

import os
import signal
import subprocess
import sys

INTERRUPTED_AT_ONCE = """
import time

from specmesh.bench.kit.processes import processes

if __name__ == "__main__":
    try:
        with processes(2) as pool:
            print("started", flush=True)
            pool.submit(sum, [1]).result()
            pool.submit(time.sleep, 60).result()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_processes_that_still_start_are_interrupted_without_a_traceback(tmp_path):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job has it ignored
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED_AT_ONCE)
    with subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        assert program.stdout.readline() == "started\n"
        os.killpg(program.pid, signal.SIGINT)
        said, complaints = program.communicate(timeout=60)
    assert "Traceback" not in complaints
    assert complaints == ""
    assert said == "interrupted\n"
