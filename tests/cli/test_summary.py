"""What the demo concludes from its runs."""

import pytest

from specmesh.cli.demo.measure import AUTOREGRESSIVE, SPECULATIVE, Run
from specmesh.cli.demo.summary import compare
from specmesh.client import FinishReason, GenerationResult, GenerationStats


def run(prompt, strategy, seconds, token_ids=(1, 2, 3, 4), num_accepted=0, temperature=0.0):
    drafts = 6 if strategy == SPECULATIVE else 0
    stats = GenerationStats(2, len(token_ids), 4 - num_accepted, drafts, num_accepted, 0, 1.0, 1.0)
    result = GenerationResult(
        "", token_ids, FinishReason.LENGTH, stats, "s", 1, "toy", strategy, 7, True, 0
    )
    return Run(prompt, strategy, temperature, result, seconds)


def test_speedup_is_the_median_of_the_prompts_own_ratios():
    """One prompt that met a slow moment of the machine moves a mean, not the median."""
    runs = [
        run(0, AUTOREGRESSIVE, 4.0),
        run(0, SPECULATIVE, 2.0),
        run(1, AUTOREGRESSIVE, 40.0),
        run(1, SPECULATIVE, 1.0),
        run(2, AUTOREGRESSIVE, 3.0),
        run(2, SPECULATIVE, 2.0),
    ]
    comparison = compare(runs, 0.0)
    assert comparison.speedup == 2
    assert comparison.autoregressive.tokens_per_s == 1
    assert comparison.speculative.tokens_per_s == 2


def test_acceptance_and_tokens_per_verify_are_over_all_prompts():
    runs = [
        run(0, AUTOREGRESSIVE, 1),
        run(0, SPECULATIVE, 1, num_accepted=3),
        run(1, AUTOREGRESSIVE, 1),
        run(1, SPECULATIVE, 1, num_accepted=0),
    ]
    comparison = compare(runs, 0.0)
    assert comparison.autoregressive.acceptance is None
    assert comparison.autoregressive.tokens_per_verify == 1
    assert comparison.speculative.acceptance == 0.25
    assert comparison.speculative.num_verify_calls == 5
    assert comparison.speculative.tokens_per_verify == pytest.approx(8 / 5)


def test_prompts_with_different_tokens_are_found_at_their_temperature():
    runs = [
        run(0, AUTOREGRESSIVE, 1),
        run(0, SPECULATIVE, 1),
        run(0, AUTOREGRESSIVE, 1, temperature=0.8),
        run(0, SPECULATIVE, 1, token_ids=(1, 2, 3, 5), temperature=0.8),
    ]
    assert compare(runs, 0.0).differing_prompts == ()
    assert compare(runs, 0.8).differing_prompts == (0,)
