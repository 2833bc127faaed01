"""The command ``specmesh`` as a process that a nursery forks: for tests of what it does, not of how
it starts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile

from tests.forks import nursery

SCRIPT = str(Path(__file__).with_name("console_script.py"))
TIMEOUT_S = 60.0
MOST_BYTES = 1 << 24


def specmesh(
    *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """How it ended, and what it wrote. Raises TimeoutExpired."""
    with open(os.devnull, "rb") as nothing, TemporaryFile() as output, TemporaryFile() as errors:
        streams = (nothing.fileno(), output.fileno(), errors.fileno())
        forked = nursery().fork(SCRIPT, arguments, os.environ if env is None else env, streams)
        try:
            status = forked.wait(TIMEOUT_S)
        finally:
            forked.kill()
        said, complained = (os.pread(each, MOST_BYTES, 0).decode() for each in streams[1:])
    return subprocess.CompletedProcess(arguments, status, said, complained)
