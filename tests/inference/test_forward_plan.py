"""Prefixes that are not cached share a forward pass."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.forward_plan import shares

CHUNK = 256


@given(pending=st.lists(st.integers(0, 400), max_size=12), chunk=st.integers(2, 300))
def test_all_of_a_chunk_is_used_and_no_more(pending, chunk):
    taken = shares(pending, chunk)
    assert all(0 <= some <= number for some, number in zip(taken, pending, strict=True))
    short = [number for number in pending if number <= BLOCK_TOKENS]
    assert sum(taken) - sum(short) == min(chunk, sum(pending) - sum(short))


@given(pending=st.lists(st.integers(0, BLOCK_TOKENS), max_size=12))
def test_what_lacks_at_most_a_block_is_computed_whole(pending):
    assert shares([*pending, 1000], CHUNK)[:-1] == pending


def test_a_short_prompt_does_not_wait_for_a_long_one():
    assert shares([100_000, 300, 100], CHUNK) == [128, 28, 100]


def test_a_long_prompt_gets_on_while_short_ones_keep_coming():
    left, num_forwards = 10_000, 0
    while left:
        left -= shares([left, 300, 300], CHUNK)[0]
        num_forwards += 1
    assert num_forwards <= 2 * 10_000 / CHUNK + 1


def test_equal_prompts_are_computed_one_after_the_other():
    assert shares([300, 300, 300], CHUNK) == [256, 0, 0]
