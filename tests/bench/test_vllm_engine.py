"""What ``specmesh bench engine --backend vllm`` verifies, and its end where there is no vLLM."""

import itertools
import subprocess

import pytest
from tests.forks import surroundings
from tests.vllm import PYTHON, START_SECONDS, needs_vllm

from specmesh import models
from specmesh.bench.engine.plan import PROMPT_TOKENS, EnginePlan
from specmesh.bench.engine.vllm.measure import VerificationTimes
from specmesh.bench.engine.vllm.report import as_json
from specmesh.bench.engine.vllm.sessions import (
    NUM_DRAFT_TOKENS,
    NUM_TEXT_TOKENS,
    ROUNDS,
    WARM_UP,
    session,
)
from specmesh.bench.engine.vllm.waiting import PrefixWaits

TEXT = list(range(NUM_TEXT_TOKENS))


def test_a_session_goes_on_behind_what_it_keeps_of_each_draft():
    asked = list(session(TEXT, PROMPT_TOKENS[1], NUM_DRAFT_TOKENS[-1], (1, 2)))
    assert len(asked) == WARM_UP + ROUNDS[NUM_DRAFT_TOKENS[-1]]
    for ask, following in itertools.pairwise(asked):
        assert ask.prefix == TEXT[: len(ask.prefix)]
        assert len(ask.draft) == NUM_DRAFT_TOKENS[-1]
        assert [*ask.prefix, *ask.draft[: ask.num_kept]] == following.prefix[:-1]
    assert {ask.num_kept for ask in asked} > {0, NUM_DRAFT_TOKENS[-1]}


def test_without_drafts_a_session_meets_each_place_in_a_block():
    lengths = [len(ask.prefix) for ask in session(TEXT, 20, 0, (1, 0))]
    assert {length % 32 for length in lengths[WARM_UP:]} == set(range(32))


def test_what_is_reported_of_a_verification():
    plan = EnginePlan("m", "float32", "cpu", 1, streams=(1,), num_tokens=4, rounds=1, seed=0)
    one = VerificationTimes(vllm_ms=11.0, called_ms=12.5, ours_ms=22.0, own_step_ms=10.0)
    waits = PrefixWaits(1024, 250.0, 14.0, 120.0, 240.0, 130.0, 260.0)
    told = as_json(plan, {1: {0: one}}, waits)
    found = told["verifications"]["1"]["0"]
    assert (found["of_own_step"], found["of_ours"], found["service_ms"]) == (1.1, 0.5, 1.5)
    assert (told["waits"]["step_ms"], told["waits"]["longest_queued_ms"]) == (250.0, 240.0)


def test_where_there_is_no_vllm_it_says_how_to_get_it(bench):
    done = bench("engine", "--backend", "vllm")
    assert done.exit_code == 2
    assert "make setup-vllm" in done.stderr


def test_more_streams_than_share_a_step_are_refused(bench):
    done = bench("engine", "--backend", "vllm", "--streams", "65")
    assert done.exit_code == 2
    assert "--streams" in done.stderr
    assert "at most 64 calls" in done.stderr


@pytest.mark.parametrize("option", ["--tokens", "--rounds"])
def test_options_that_would_have_no_effect_are_refused(bench, option):
    done = bench("engine", "--backend", "vllm", option, "2")
    assert done.exit_code == 2
    assert option in done.stderr
    assert "has no effect with --backend vllm" in done.stderr


PROGRAM = """
import sys
from specmesh.bench.engine.plan import EnginePlan
from specmesh.bench.engine.vllm import programs
from specmesh.inference.model import ModelNotLoadable
programs.CACHE_BYTES = 6 << 20
plan = EnginePlan(sys.argv[1], "float32", "cpu", 1, (1, 6), 64, 1, 0)
texts = [list(range(number, 300 + number)) for number in range(6)]
programs.start_decoding(programs.SessionsLoad(plan, texts, [256] * 6))
assert len(programs.turn(4, 0, 2)) == 2
try:
    programs.turn(6, 0, 1)
except ModelNotLoadable as error:
    print(error)
"""


@needs_vllm
def test_steps_are_not_timed_that_leave_sessions_out():
    """Of six prompts of 256 tokens, which the memory for KV has no room for."""
    done = subprocess.run(
        [str(PYTHON), "-c", PROGRAM, str(models.path(models.TARGET))],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=True,
        env=surroundings(),
    )
    assert "of 6 sessions at a time: there is too little memory" in done.stdout
