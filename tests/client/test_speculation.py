"""Latencies and accepted counts, read from traces."""

from tests.client.spans import (
    DRAFTER,
    call,
    cancelled_call,
    client,
    draft,
    generate,
    round_,
    verification,
)

from specmesh.traces.analysis.speculation import accepted_counts, latencies

ANSWER = [client(0, 100), generate(0, 100), round_(0, 100)]


def test_latencies_are_medians_over_the_calls_that_were_answered():
    spans = [
        *ANSWER,
        *draft((0, 8), 4),
        *draft((8, 12), 4, n=2),
        *draft((12, 24), 4, n=3),
        *cancelled_call("draft", DRAFTER, (24, 90), (24, 90), n=4),
        *verification((24, 36), 4, 4),
    ]
    times = latencies(spans)
    assert (times.draft_ms, times.drafter_step_ms) == (8, 2)
    assert (times.verify_ms, times.target_ms) == (12, 12)


def test_a_drafters_step_is_one_of_the_levels_that_came():
    spans = [
        *ANSWER,
        *draft((0, 8), 2, asked=8),
        *draft((8, 20), 0, n=2, asked=8),
        *verification((24, 36), 2, 2),
    ]
    times = latencies(spans)
    assert (times.draft_ms, times.drafter_step_ms) == (8, 4)


def test_without_drafts_there_are_no_latencies():
    assert latencies([*ANSWER, *verification((24, 36), 0, 0)]) is None


def test_accepted_counts_are_of_drafts_of_one_length_alone():
    spans = [
        *ANSWER,
        *verification((0, 10), 4, 4),
        *verification((10, 20), 4, 0),
        *verification((20, 30), 4, 4),
        *verification((30, 40), 3, 3),
        *call("verify", DRAFTER, (40, 50), (40, 50)),
    ]
    assert accepted_counts(spans, 4) == [1, 0, 0, 0, 2]
