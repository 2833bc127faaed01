"""Verdicts on answers that were made up, right and wrong ones."""

from dataclasses import replace

import pytest

from specmesh.bench.chaos.answers import ChaosAnswer
from specmesh.bench.chaos.judging.judge import AnswerVerdict, Stored, compare, judge
from specmesh.bench.chaos.judging.truth import DRAWING_TEMPERATURE, SimulatedTruth
from specmesh.bench.chaos.requests import ChaosRequest
from specmesh.client import AcceptanceMode, FinishReason
from specmesh.decoding.simulated.hashed import SimulatedTarget

TARGET = SimulatedTarget(seed=5)
TRUTH = SimulatedTruth(TARGET)
REQUEST = ChaosRequest(
    prompt=(1, 2, 3),
    strategy="dsi",
    temperature=0.0,
    mode=AcceptanceMode.COUPLED,
    seed=7,
    max_tokens=40,
)
DRAWN = replace(REQUEST, temperature=DRAWING_TEMPERATURE, mode=AcceptanceMode.REJECTION)
NOT_READ = Stored(None, durable=False)


def truth(request=REQUEST, length=REQUEST.max_tokens):
    return list(TRUTH.tokens(request, length))


def answered(tokens, request=REQUEST, **changes):
    finished = {"finish_reason": FinishReason.LENGTH, "resumable": True}
    return ChaosAnswer(
        0, 0, request, began_s=0.0, token_ids=list(tokens), **{**finished, **changes}
    )


def test_the_targets_own_tokens_are_right_and_exact():
    verdict = judge(answered(truth()), TRUTH, Stored(tuple(truth()), durable=True))
    assert (verdict.fate, verdict.exact, verdict.agreed) == (AnswerVerdict.RIGHT, True, True)


def test_a_coupled_draw_has_one_true_text_by_its_seed():
    drawn = replace(DRAWN, mode=AcceptanceMode.COUPLED)
    greedy = truth()
    assert truth(drawn) != greedy
    assert judge(answered(truth(drawn), drawn), TRUTH, NOT_READ).exact
    assert judge(answered(greedy, drawn), TRUTH, NOT_READ).fate is AnswerVerdict.CHANGED
    assert judge(answered(truth(drawn), replace(drawn, seed=8)), TRUTH, NOT_READ).fate is (
        AnswerVerdict.CHANGED
    )


@pytest.mark.parametrize(
    ("tokens", "fate"),
    [
        (truth()[:10] + truth(length=60)[15:45], AnswerVerdict.LOST),
        (truth()[:10] + truth()[5:35], AnswerVerdict.DOUBLED),
        ([*truth()[:10], 999, *truth()[11:]], AnswerVerdict.CHANGED),
        (truth()[:30], AnswerVerdict.LOST),
        (truth(length=41), AnswerVerdict.DOUBLED),
    ],
)
def test_tokens_that_are_missing_twice_there_or_others_are_told_apart(tokens, fate):
    verdict = judge(answered(tokens), TRUTH, NOT_READ)
    assert (verdict.fate, verdict.exact) == (fate, False)
    assert verdict.why


@pytest.mark.parametrize(("gap", "fate"), [(3, AnswerVerdict.LOST), (-3, AnswerVerdict.DOUBLED)])
def test_chunks_that_do_not_follow_one_another_lose_or_double_tokens(gap, fate):
    assert judge(answered(truth(), gap=gap), TRUTH, NOT_READ).fate is fate


def test_an_answer_that_was_broken_off_is_judged_as_far_as_it_came():
    begun = answered(truth()[:10], finish_reason=None)
    verdict = judge(begun, TRUTH, Stored(tuple(truth()[:30]), durable=True))
    assert (verdict.fate, verdict.exact) == (AnswerVerdict.RIGHT, False)
    begun.token_ids[9] += 1
    assert judge(begun, TRUTH, NOT_READ).fate is AnswerVerdict.CHANGED


def test_a_stop_token_ends_the_answer_and_nothing_else_does():
    stop = truth()[20]
    request = replace(REQUEST, stop_token_ids=(stop,))
    until_stop = truth()[: truth().index(stop) + 1]
    stopped = answered(until_stop, request, finish_reason=FinishReason.STOP)
    assert judge(stopped, TRUTH, NOT_READ).exact
    assert judge(answered(truth(), request), TRUTH, NOT_READ).fate is AnswerVerdict.CHANGED
    stopped.token_ids.pop()
    assert judge(stopped, TRUTH, NOT_READ).fate is AnswerVerdict.LOST


def test_where_the_text_can_be_one_of_many_the_store_is_the_witness():
    text = list(range(40))
    same = judge(answered(text, DRAWN), TRUTH, Stored(tuple(text), durable=True))
    assert (same.fate, same.exact, same.agreed) == (AnswerVerdict.RIGHT, False, True)
    other = Stored((*text[:20], *range(100, 120)), durable=True)
    assert judge(answered(text, DRAWN), TRUTH, other).fate is AnswerVerdict.CHANGED
    # The reader's tokens lack some of those stored.
    assert judge(answered(text[:10] + text[15:], DRAWN), TRUTH, NOT_READ).fate is AnswerVerdict.LOST


def test_a_store_must_have_what_is_said_to_be_resumable_unless_it_forgot():
    text = list(range(40))
    behind = Stored(tuple(text[:30]), durable=True)
    assert judge(answered(text, DRAWN), TRUTH, behind).fate is AnswerVerdict.LOST
    assert judge(answered(text, DRAWN, resumable=False), TRUTH, behind).fate is AnswerVerdict.RIGHT
    assert (
        judge(answered(text, DRAWN), TRUTH, replace(behind, durable=False)).fate
        is AnswerVerdict.RIGHT
    )
    assert (
        judge(answered(text, DRAWN), TRUTH, Stored(None, durable=True)).fate is AnswerVerdict.LOST
    )
    assert judge(answered(text, DRAWN), TRUTH, NOT_READ).fate is AnswerVerdict.RIGHT


def test_of_filters_text_the_target_answers_for_what_it_checked():
    request = replace(REQUEST, strategy="filter")
    said = truth()[:5]
    said.append((said[-1] + 1) % TARGET.vocab_size)  # the drafter's
    state = TARGET.after(TARGET.start, (*REQUEST.prompt, *said))
    said += [TARGET.token(state), 999]
    unchecked = {5, 7}
    begun = {"finish_reason": None, "unchecked": unchecked}
    assert judge(answered(said, request, **begun), TRUTH, NOT_READ).fate is AnswerVerdict.RIGHT
    begun["unchecked"] = {5}
    assert judge(answered(said, request, **begun), TRUTH, NOT_READ).fate is AnswerVerdict.CHANGED


def test_repeats_of_less_than_a_few_tokens_are_accidents():
    assert compare((1, 2, 3, 1, 2), (1, 2, 3, 4, 5)) is AnswerVerdict.CHANGED
    assert compare((1, 2, 3), (1, 2, 3, 4, 5)) is AnswerVerdict.RIGHT
