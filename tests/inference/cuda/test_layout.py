"""Spans and bits, which the kernels read, say what the mask says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.batch import BatchPart
from specmesh.inference.models.cuda.layout import Layout, lay_out


def part(width: int, length: int, mask: np.ndarray | None, first_block: int = 0) -> BatchPart:
    """The last ``width`` of ``length`` tokens; the blocks follow one another, with one to spare."""
    first = length - width
    blocks = np.arange(first_block, first_block + length // BLOCK_TOKENS + 2)
    slots = [first_block * BLOCK_TOKENS + index for index in range(first, length)]
    positions = range(first, length)
    return BatchPart(slots, positions, slots, slots, range(width), blocks, length, mask)


def masks_of(layout: Layout) -> list[np.ndarray]:
    """Return each sequence's mask, read from the layout as the kernel reads it."""
    masks = []
    for number, (_, length, num_new, first) in enumerate(layout.sequences.tolist()):
        mask = np.zeros((num_new, length), np.bool_)
        for sequence, begin, count in layout.tiles.tolist():
            for token in range(begin, begin + count) if sequence == number else ():
                span = layout.spans[token]
                row = mask[token - first]
                row[:span] = True
                for after in range(length - span):
                    if after < 32 * layout.bits.shape[1]:
                        word = int(layout.bits[token, after // 32])
                        row[span + after] |= bool(word >> after % 32 & 1)
        masks.append(mask)
    return masks


@st.composite
def parts_of_trees(draw) -> list[BatchPart]:
    """Sequences with prefixes and trees of any shape, a few of them without a mask."""
    parts = []
    for number in range(draw(st.integers(1, 4))):
        width, held = draw(st.integers(1, 70)), draw(st.integers(0, 60))
        mask: np.ndarray | None = np.zeros((width, held + width), np.bool_)
        assert mask is not None
        mask[:, :held] = True
        for node in range(width):
            parent = draw(st.integers(-1, node - 1))
            if parent >= 0:
                mask[node] |= mask[parent]
            mask[node, held + node] = True
        mask = mask[:, draw(st.integers(0, held)) :]
        if width == 1 and draw(st.booleans()):
            mask = None
        parts.append(part(width, held + width, mask, first_block=100 * number))
    return parts


@given(parts=parts_of_trees(), tile_tokens=st.integers(1, 9))
def test_every_token_sees_what_its_mask_says(parts, tile_tokens):
    layout = lay_out(parts, (), tile_tokens)
    for each, mask in zip(parts, masks_of(layout), strict=True):
        if each.attention_mask is None:
            assert mask.all()
        else:
            num_last = each.attention_mask.shape[1]
            assert mask[:, : each.length - num_last].all()
            np.testing.assert_array_equal(mask[:, each.length - num_last :], each.attention_mask)


@given(parts=parts_of_trees(), tile_tokens=st.integers(1, 9))
def test_every_token_is_in_one_tile_of_its_sequence(parts, tile_tokens):
    layout = lay_out(parts, (), tile_tokens)
    tokens = [range(first, first + count) for _, first, count in layout.tiles.tolist()]
    assert [token for tile in tokens for token in tile] == list(range(len(layout.token_ids)))
    assert max(map(len, tokens)) <= tile_tokens


def test_a_chain_needs_no_bits():
    mask = np.ones((5, 25), np.bool_)
    mask[:, 20:] = np.tri(5, dtype=np.bool_)
    layout = lay_out([part(5, 25, mask)], (), 4)
    assert layout.bits.shape == (5, 0)
    assert layout.spans.tolist() == [21, 22, 23, 24, 25]


def test_tables_lie_one_after_another():
    layout = lay_out([part(1, 20, None), part(1, 40, None, first_block=7)], (), 4)
    assert layout.tables.tolist() == [0, 1, 7, 8, 9]
    assert layout.sequences.tolist() == [[0, 20, 1, 0], [2, 40, 1, 1]]
    assert layout.rows.tolist() == [0, 1]
