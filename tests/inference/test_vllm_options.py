"""What vLLM's own command line may say in ``--engine-options``, and what that changes."""

from __future__ import annotations

import json
import subprocess
from functools import cache

import pytest
from tests.forks import surroundings
from tests.vllm import PYTHON, START_SECONDS, needs_vllm

from specmesh import models

pytestmark = needs_vllm

CACHE_BYTES = 8 << 20
REFUSED = {
    "--gpu-memory-utilization 0.5": "--engine-options: --gpu-memory-utilization is set by "
    "--cache-bytes",
    "--runner pooling": "--engine-options: --runner is set by specmesh, which needs it as it is",
    "--convert embed": "--engine-options: --convert is set by specmesh, which needs it as it is",
}
"""Options that are refused, with the reasons."""
PROGRAM = """
import json, sys
from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm.loading.steps import start
from specmesh.inference.models.vllm.options import CoreOptions
asked = json.loads(sys.argv[1])
told = {}
for given in asked["refused"]:
    try:
        start(
            CoreOptions(
                asked["model"], "float32", "cpu", 1024, asked["cache_bytes"], 64, 512, 256, 1, 1,
                given,
            )
        )
    except ModelNotLoadable as error:
        told[given] = str(error)
print(json.dumps(told))
"""


@cache
def told() -> dict[str, str]:
    """What one process says to all of them, since to import vLLM takes long."""
    asked = {
        "model": str(models.path(models.TARGET)),
        "cache_bytes": CACHE_BYTES,
        "refused": list(REFUSED),
    }
    done = subprocess.run(
        [str(PYTHON), "-c", PROGRAM, json.dumps(asked)],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=True,
        env=surroundings(),
    )
    answers: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("given", REFUSED)
def test_options_that_would_do_nothing_or_fail_later_are_refused_by_name(given):
    assert told()[given] == REFUSED[given]
