"""A GPU that a fault has made unusable counts as lost, so that the process ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu


def test_no_forward_pass_follows_one_that_broke_the_device():
    command = [sys.executable, "-m", "tests.gpu.losing_device"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["DeviceLost", "DeviceLost"], done.stderr
