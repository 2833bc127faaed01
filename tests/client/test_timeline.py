"""Who did what when."""

from tests.client.spans import (
    DRAFTER,
    VERIFIER,
    call,
    cancel,
    cancelled_call,
    client,
    committed_round,
    draft,
    generate,
    verification,
)

from specmesh.serving.conventions import DRAFT_SPAN, VERIFY_SPAN
from specmesh.traces.analysis.timeline import Bar, Timeline, timeline

ANSWER = [client(0, 100), generate(0, 100)]


def ms(value):
    return int(value * 1e6)


def test_a_bar_begins_when_the_call_has_left_the_queue():
    spans = [*ANSWER, *call("verify", VERIFIER, (10, 30), (12, 28), queue_ms=3.0)]
    (row,) = timeline(spans).rows
    assert (row.node, row.what) == (VERIFIER, VERIFY_SPAN)
    assert row.bars == (Bar(ms(15), ms(28), cancelled=False),)


def test_verifiers_come_before_drafters_and_bars_in_order():
    spans = [
        *ANSWER,
        *draft((40, 50), 4, n=2),
        *draft((0, 10), 4, n=1),
        *verification((10, 30), 4, 4),
    ]
    result = timeline(spans)
    assert [(row.node, row.what) for row in result.rows] == [
        (VERIFIER, VERIFY_SPAN),
        (DRAFTER, DRAFT_SPAN),
    ]
    assert [bar.start_ns for bar in result.rows[1].bars] == [0, ms(40)]


def test_a_call_is_cancelled_if_its_caller_says_so():
    spans = [*ANSWER, cancel(20, 22), *cancelled_call("draft", DRAFTER, (5, 21), (6, 23))]
    ((row,), expected) = timeline(spans).rows, Bar(ms(6), ms(23), cancelled=True)
    assert row.bars == (expected,)


def test_commits_are_the_ends_of_rounds_that_brought_tokens():
    spans = [*ANSWER, committed_round(40, 60, 1, n=2), committed_round(0, 40, 3)]
    assert [(c.at_ns, c.num_tokens) for c in timeline(spans).commits] == [(ms(40), 3), (ms(60), 1)]


def test_a_verdict_that_fewer_tokens_stand_is_a_rejection():
    spans = [*ANSWER, *verification((10, 30), 4, 2), *verification((30, 50), 4, 4, n=2)]
    assert timeline(spans).rejections_ns == (ms(30),)


def test_a_verdict_that_ends_a_draft_is_a_rejection_of_the_token_after():
    """What DSI does: the target said a token itself, and the drafter went on with another."""
    spans = [
        *ANSWER,
        committed_round(0, 32, 1),
        *verification((10, 30), 0, 0),
        cancel(31, 31.5),
        *cancelled_call("draft", DRAFTER, (5, 31.2), (6, 33)),
    ]
    assert timeline(spans).rejections_ns == (ms(31),)


def test_a_draft_ended_because_it_is_long_enough_is_no_rejection():
    """What branch prediction does: it cancels the rest and has what there is verified."""
    spans = [
        *ANSWER,
        committed_round(0, 62, 5),
        cancel(31, 31.5),
        *cancelled_call("draft", DRAFTER, (5, 31.2), (6, 33)),
        *verification((32, 60), 4, 4),
    ]
    assert timeline(spans).rejections_ns == ()


def stretch(*drafts):
    """Verifications of 10 ms each; one rejects, at 70 ms."""
    spans = [*ANSWER, *drafts]
    for n in range(10):
        rejected = n == 6
        spans += [
            committed_round(10 * n, 10 * n + 10, 1 if rejected else 5, n=n + 1),
            *verification((10 * n, 10 * n + 10), 4, 0 if rejected else 4, n=n + 1),
        ]
    return timeline(spans)


def test_between_keeps_what_reaches_into_the_stretch():
    part = stretch().between(ms(15), ms(32))
    assert [bar.start_ns for bar in part.rows[0].bars] == [ms(10), ms(20), ms(30)]
    assert [c.at_ns for c in part.commits] == [ms(20), ms(30)]
    assert part.rejections_ns == ()


def test_the_busiest_stretch_begins_with_a_commit_and_holds_the_rejection():
    whole = stretch()
    part = whole.busiest(25)
    assert part.start_ns in {c.at_ns for c in whole.commits}
    assert part.rejections_ns == (ms(70),)
    assert part.end_ns - part.start_ns == ms(25)


def test_the_busiest_stretch_is_rather_one_in_which_the_drafter_works_too():
    part = stretch(*draft((21, 29), 4, n=20)).busiest(25)
    assert [len(row.bars) > 0 for row in part.rows] == [True, True]
    assert part.rejections_ns == ()


def test_an_answer_shorter_than_the_stretch_is_shown_whole():
    whole = stretch()
    assert whole.busiest(200) is whole
    assert isinstance(timeline(ANSWER), Timeline)
