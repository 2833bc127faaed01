"""The orchestrator under thousands of schedules on virtual time; see ``run`` and ``ledger``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.schedules.__main__ import run_batch
from tests.schedules.mutations import MUTATIONS, find
from tests.schedules.run import run
from tests.schedules.scenario import ADDED, KINDS, OF_NAMES

FIRST_SEED = 1_000_000
COUNT = 400
COUNT_WITH_WIDTH = 60
WIDTH = 4
PARTS = 2
MOST_SEEDS = 500
"""Until a mutation is found, should its seed mean something else by now."""
FOUND = (4630, 7794, 22339, 24444, 76732, 94085)
"""Violated once: by replicas that had all fallen ill at once, and by connections
that broke again and again or all at once, requests were found guilty of breaking replicas. And a
thief whose call brought nothing was not waited for."""
REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_violates_an_invariant(part):
    size = COUNT // PARTS
    total = run_batch(range(FIRST_SEED + part * size, FIRST_SEED + (part + 1) * size))
    assert total.violated == {}
    assert total.finished > 0.9 * total.answers


def test_no_schedule_with_second_choices_does():
    total = run_batch(range(FIRST_SEED, FIRST_SEED + COUNT_WITH_WIDTH), width=WIDTH)
    assert total.violated == {}
    assert total.finished > 0.9 * total.answers


def test_schedules_that_were_violated_once_are_not_again():
    kinds = [kind for kind in KINDS if kind not in OF_NAMES | ADDED]  # those that there were then
    assert [run(seed, kinds=kinds).violations for seed in FOUND] == [()] * len(FOUND)


@pytest.mark.parametrize("name", MUTATIONS)
def test_fix_that_is_taken_out_is_missed(name):
    found = find(MUTATIONS[name], range(MOST_SEEDS))
    assert found is not None
    assert run(found.seed, kinds=MUTATIONS[name].kinds).violations == ()


def test_seed_gives_the_same_schedule_again_in_another_process():
    """Neither the order of hashes nor that of addresses in memory has a say."""
    for seed in (3, 14):
        traces = {_trace(seed, hash_seed) for hash_seed in (1, 2)}
        assert len(traces) == 1
        assert "finished" in traces.pop()


def _trace(seed: int, hash_seed: int) -> str:
    command = [sys.executable, "-m", "tests.schedules", "--seed", str(seed)]
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    shown = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert not shown.stderr
    return shown.stdout
