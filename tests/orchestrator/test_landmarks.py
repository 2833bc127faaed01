"""Few beginnings of a prefix are noted, and the next prefix meets one of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.orchestrator.replicas.prefixes.landmarks import (
    GRID_TOKENS,
    MAX_ON_GRID,
    NUM_LATEST,
    worth_looking_up,
    worth_noting,
)

LENGTHS = st.integers(0, 1 << 20)


@given(prompt=LENGTHS, answer=LENGTHS)
def test_they_are_whole_blocks_in_order_and_few(prompt, answer):
    length = prompt + answer
    noted = worth_noting(length, ends={prompt, length})
    looked_up = worth_looking_up(length)
    for lengths, most in ((noted, MAX_ON_GRID + 2), (looked_up, MAX_ON_GRID + NUM_LATEST)):
        assert len(lengths) <= most
        assert sorted(set(lengths)) == lengths
        assert all(each % BLOCK_TOKENS == 0 and 0 < each <= length for each in lengths)


@given(prompt=LENGTHS, answer=LENGTHS, message=st.integers(0, (NUM_LATEST - 1) * BLOCK_TOKENS))
def test_the_next_turn_looks_where_the_one_before_ended(prompt, answer, message):
    length = prompt + answer
    end = length // BLOCK_TOKENS * BLOCK_TOKENS
    if end:
        assert end in worth_noting(length, ends={prompt, length})
        assert end in worth_looking_up(length + message)


@given(shared=LENGTHS, first=LENGTHS, second=LENGTHS)
def test_prompts_that_begin_alike_meet_at_most_a_sixteenth_before_they_part(shared, first, second):
    """Of the longer one: so far apart are the points of its grid."""
    noted = worth_noting(shared + first, ends={shared + first})
    looked_up = worth_looking_up(shared + second)
    common = max((each for each in {*noted} & {*looked_up} if each <= shared), default=0)
    apart = max(GRID_TOKENS, (shared + max(first, second)) / (MAX_ON_GRID / 4))
    assert shared - common < apart


@pytest.mark.parametrize("length", [0, 1, BLOCK_TOKENS - 1])
def test_less_than_a_block_is_not_worth_a_question(length):
    assert worth_looking_up(length) == []
    assert worth_noting(length, ends={length}) == []
