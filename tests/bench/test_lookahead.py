"""What is concluded from the runs with several lookaheads."""

import pytest

from specmesh.bench.lookahead import (
    contest,
    contest_json,
    describe_difference,
    describe_outcome,
)
from specmesh.client import FinishReason, GenerationResult, GenerationStats
from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.tools.kit.experiment import AUTOREGRESSIVE, SPECULATIVE, Run, Speculation


def run(prompt, lookahead, seconds, token_ids=(1, 2, 3, 4), strategy=SPECULATIVE, temperature=0.0):
    stats = GenerationStats(
        num_prompt_tokens=2,
        num_output_tokens=len(token_ids),
        num_verify_calls=2,
        num_verified_tokens=6,
        num_accepted_tokens=2,
        num_wasted_tokens=4,
        time_to_first_token_ms=1.0,
        duration_ms=1.0,
        num_drafted_tokens=6,
        num_target_tokens=8,
    )
    result = GenerationResult(
        text="",
        token_ids=token_ids,
        finish_reason=FinishReason.LENGTH,
        stats=stats,
        session_id="s",
        epoch=1,
        model="toy",
        strategy=strategy,
        seed=7,
        resumable=True,
        num_resumes=0,
    )
    return Run(
        prompt,
        Speculation(strategy, StrategyOptions(lookahead=lookahead)),
        temperature,
        result,
        seconds,
    )


def plain(prompt, seconds):
    return run(prompt, None, seconds, strategy=AUTOREGRESSIVE)


RUNS = [
    *(plain(0, 2.0), plain(1, 2.0)),
    *(run(0, 2, 1.0), run(1, 2, 1.0)),
    *(run(0, 5, 0.5), run(1, 5, 2.5)),
    *(run(0, None, 0.5), run(1, None, 1.1)),
    run(0, None, 99.0, temperature=0.8),
]


def test_adaptive_lookahead_is_held_against_the_best_fixed_one():
    found = contest(RUNS, 0.0)
    assert found.best_fixed.lookahead == 2
    assert found.ratio == pytest.approx(2.0 / 1.6)
    assert "1.250 times as fast as the best fixed one, 2." in describe_outcome(found)


def test_speed_is_all_tokens_over_all_the_time_and_the_median_prompt_stands_beside_it():
    _, five = contest(RUNS, 0.0).fixed
    assert five.tokens_per_s == pytest.approx(8 / 3)
    assert five.median_tokens_per_s == pytest.approx((8 + 1.6) / 2)
    assert five.speedup == pytest.approx(4 / 3)
    assert (five.drafted_per_verify, five.accepted_per_verify) == (3, 1)


def test_any_other_text_is_told():
    runs = [plain(0, 2.0), run(0, 2, 1.0), run(0, None, 1.0, token_ids=(1, 2, 3, 5))]
    found = contest(runs, 0.0)
    assert not found.identical
    assert describe_difference(found) == (
        "DIFFERENT TEXT at temperature 0 with lookahead adaptive: prompt 1"
    )
    assert contest_json(found)["adaptive"]["differing_prompts"] == (0,)
