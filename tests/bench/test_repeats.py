"""Which share of an answer's tokens repeats."""

import pytest

from specmesh.tools.demo.repeats import NUM_TOKENS, repeated_share

RUN = tuple(range(NUM_TOKENS))
OTHER = tuple(range(100, 100 + NUM_TOKENS))


@pytest.mark.parametrize(
    ("answer", "num_repeated"),
    [
        ((), 0),
        (RUN[1:], 0),
        (RUN, 0),
        (RUN + RUN, NUM_TOKENS),
        (RUN + OTHER, 0),
        (RUN + OTHER + RUN + OTHER, 2 * NUM_TOKENS),
        (RUN + RUN[:-1], 0),  # one token less than counts
        ((99, *RUN, 98, *RUN, 97), NUM_TOKENS),
        ((1, 2, 3) * NUM_TOKENS, 3 * (NUM_TOKENS - 1)),  # all but the first round
    ],
)
def test_a_token_is_repeated_in_a_run_that_the_answer_has_said_before(answer, num_repeated):
    assert repeated_share([answer]) == pytest.approx(num_repeated / max(1, len(answer)))


def test_what_another_answer_has_said_is_no_repetition():
    assert repeated_share([RUN, RUN]) == 0


def test_the_share_is_one_of_all_answers_tokens():
    assert repeated_share([RUN + RUN, OTHER * 4, RUN, RUN]) == (1 + 3) / 8


def test_no_answers_repeat_nothing():
    assert repeated_share([]) == 0
