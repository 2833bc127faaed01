"""A command whose work is spread over processes ends silently on Ctrl-C, from the first moment on,
and leaves no process behind if it is killed."""

import signal
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


KILLED = """
import os, signal, time

from specmesh.tools.kit.processes import processes

if __name__ == "__main__":
    with processes(2) as pool:
        pool.submit(sum, [1]).result()
        pool.submit(time.sleep, 600)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_end_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script)]
    # The processes inherit these streams, which end only with the last of them.
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
