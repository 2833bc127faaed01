"""Steps, told as they are taken."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def step(name: str, work: Callable[[], str]) -> None:
    """Do ``work`` and print its outcome. Raises what it raises."""
    say(f"...  {name}")
    began = time.monotonic()
    try:
        told = work()
    except BaseException:
        say(f"FAIL {name} ({time.monotonic() - began:.1f} s)")
        raise
    say(f"ok   {name} ({time.monotonic() - began:.1f} s): {told}")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
