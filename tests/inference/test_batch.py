"""How parts of many sequences are packed into one forward."""

from __future__ import annotations

import pickle
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.batch import GROUP_COST_BLOCKS, BatchPart, Copy, pack


def part(width: int, length: int, *, name: int = 0, rows=None, attention_mask=None) -> BatchPart:
    """The last ``width`` of ``length`` tokens; numbers from 1000 × ``name`` on tell whose."""
    first = length - width
    own = range(1000 * name + first, 1000 * name + length)
    return BatchPart(
        token_ids=own,
        positions=range(first, length),
        slots=own,
        parent_slots=[max(own.start, slot - 1) for slot in own],
        rows=range(width) if rows is None else rows,
        blocks=[100 * name + block for block in range(length // BLOCK_TOKENS + 3)],
        length=length,
        attention_mask=attention_mask,
    )


def test_sequences_of_one_width_are_one_group():
    batch = pack([part(1, 40), part(5, 20, name=1), part(1, 33, name=2)], [])
    assert [(group.start, group.width, len(group.blocks)) for group in batch.groups] == [
        (0, 1, 2),
        (2, 5, 1),
    ]


def test_rows_follow_the_parts_wherever_their_tokens_went():
    batch = pack([part(1, 20), part(3, 30, name=1, rows=[0, 2]), part(1, 40, name=2)], [])
    assert batch.token_ids[batch.rows].tolist() == [19, 1027, 1029, 2039]


def test_tokens_positions_and_slots_stay_together():
    batch = pack([part(2, 9, name=1), part(1, 40, name=2), part(2, 50, name=3)], [])
    assert (batch.token_ids % 1000).tolist() == batch.positions.tolist()
    assert batch.slots.tolist() == batch.token_ids.tolist()


def test_what_lies_beyond_a_shorter_sequence_is_hidden_and_its_own():
    (group,) = pack([part(1, 20), part(1, 40, name=1)], []).groups
    assert group.blocks.tolist() == [[100, 101, 102], [0, 1, 1]]
    assert group.length == 40
    assert group.attention_mask.sum(axis=2).tolist() == [[40], [20]]


def test_what_is_read_beyond_the_end_of_a_shorter_sequence_is_named():
    parts = [part(1, 20), part(1, 40, name=1), part(1, 32, name=2), part(2, 9, name=3)]
    assert pack(parts, []).padding_slots.tolist() == list(range(16 + 4, 32))
    assert not pack(parts[1:2], []).padding_slots.size


def test_no_mask_where_everything_is_seen():
    (group,) = pack([part(1, 40), part(1, 40, name=1)], []).groups
    assert group.attention_mask is None


def test_what_a_part_sees_is_kept():
    attention_mask = np.tril(np.ones((3, 20), np.bool_), 17)
    (group,) = pack([part(3, 20, attention_mask=attention_mask)], []).groups
    assert np.array_equal(group.attention_mask[0], attention_mask)
    # What all attend to may be left out.
    (group,) = pack([part(3, 20, attention_mask=attention_mask[:, 12:])], []).groups
    assert np.array_equal(group.attention_mask[0], attention_mask)


def test_short_sequences_are_not_padded_to_long_ones():
    lengths = [2000, 16, 1990, 16]
    batch = pack([part(1, length, name=name) for name, length in enumerate(lengths)], [])
    assert [group.blocks.shape for group in batch.groups] == [(2, 125), (2, 1)]


@pytest.mark.parametrize("sizes", [[1], [30, 1], [3, 1, 2, 1]])
def test_few_short_sequences_are_one_group(sizes):
    parts = [part(1, size * BLOCK_TOKENS, name=name) for name, size in enumerate(sizes)]
    assert len(pack(parts, []).groups) == 1


@given(st.lists(st.integers(1, 100), min_size=1, max_size=7))
def test_groups_are_cut_where_it_costs_least(sizes):
    parts = [part(1, size * BLOCK_TOKENS, name=name) for name, size in enumerate(sizes)]
    found = sum(GROUP_COST_BLOCKS + group.blocks.size for group in pack(parts, []).groups)
    ordered = sorted(sizes, reverse=True)

    def cost(cuts: tuple[bool, ...]) -> int:
        starts = [0, *(at for at, cut in enumerate(cuts, start=1) if cut), len(ordered)]
        return sum(
            GROUP_COST_BLOCKS + ordered[start] * (end - start) for start, end in pairwise(starts)
        )

    assert found == min(map(cost, product((False, True), repeat=len(ordered) - 1)))


def test_a_batch_travels_between_processes():
    copy = Copy(np.arange(3), np.arange(3, 6))
    batch = pack([part(2, 9), part(1, 20)], [copy])
    again = pickle.loads(pickle.dumps(batch))
    assert again.token_ids.tolist() == batch.token_ids.tolist()
    assert again.copies[0].destinations.tolist() == [3, 4, 5]
