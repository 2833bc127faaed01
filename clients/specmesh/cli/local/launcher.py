"""A script that becomes another program, which dies with its parent and runs on given cores.

It is called as ``launcher.py PARENT_PID CORES NICENESS PROGRAM ARGUMENT...``, with CORES like
``0,2`` or empty for all. It is a separate program because code between fork and exec is not safe in
a multi-threaded process such as a gRPC client.
"""

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_SESSION = "/proc/self/autogroup"
"""The niceness of this session beside others."""
_TRIES = 20
_PAUSE_S = 0.11
"""The kernel lets unprivileged processes change one session in 0.1 s."""


def main(parent_pid: int, cores: str, niceness: int, command: list[str]) -> None:
    """Replace this process by ``command``; never returns."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # the parent died before the prctl above
            sys.exit(1)
        if cores:
            os.sched_setaffinity(0, map(int, cores.split(",")))
    if niceness:
        give_way(niceness)
    os.execvp(command[0], command)  # noqa: S606


def give_way(niceness: int) -> None:
    """Let other processes run first. On Linux each session may be scheduled as one, and then the
    niceness of a process counts only within its own; each process of the mesh has a session."""
    os.nice(niceness)
    for _ in range(_TRIES):
        try:
            with open(_SESSION, "w") as session:
                session.write(str(niceness))
        except BlockingIOError:  # another process has just changed its own
            time.sleep(_PAUSE_S)
        except OSError:  # another system, or a kernel that does not do this
            return
        else:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:])
