"""``specmesh bench vllm`` in vLLM's environment: both sides answer, and say the same."""

import json
import subprocess

from tests.forks import surroundings
from tests.vllm import PYTHON, START_SECONDS, needs_vllm

from specmesh.bench.peer.plan import PROMPT_TOKENS

pytestmark = needs_vllm


def test_the_mesh_and_vllm_answer_the_same():
    done = subprocess.run(
        (
            *(PYTHON, "-m", "specmesh.bench.peer", "--json", "--temperature", "0"),
            *("--streams", "2", "--rounds", "1", "--tokens", "8"),
        ),
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=2 * START_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert cell["different_texts"] == 0
    assert cell["vllm_cached_tokens"] == 2 * (PROMPT_TOKENS - 1)
    assert cell["strategies"].keys() == {"autoregressive", "auto"}


def test_answers_that_are_too_long_are_refused_before_anything_is_loaded():
    done = subprocess.run(
        (PYTHON, "-m", "specmesh.bench.peer", "--tokens", "1000"),
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("specmesh: --tokens is at most 894 with ")
