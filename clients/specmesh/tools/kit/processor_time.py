"""The processor time of other processes."""

from __future__ import annotations

import sys
import time

import psutil


def processor_s(pid: int) -> float:
    """Return the seconds of a core that a process of this machine has used so far.

    On Linux they are exact to the microsecond; elsewhere they may count in steps of 10 ms. Raises
    ProcessLookupError if there is no such process.
    """
    try:
        if sys.platform == "linux":
            # The clock of a process by its id, as clock_getcpuclockid(3) makes it, which Python
            # lacks. It includes threads that have ended, which /proc does not in fine steps.
            return time.clock_gettime(~pid << 3 | 2)
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system
    except (OSError, psutil.NoSuchProcess) as error:
        raise ProcessLookupError(f"no process has the id {pid}") from error
