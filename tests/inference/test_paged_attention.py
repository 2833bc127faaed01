"""Forwards of many sequences at once against the plain model, for three architectures."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine import forward_plan
from specmesh.inference.engine.blocks.pool import NoRoom, TooLarge
from specmesh.inference.model import Cancellation, ForwardRequest, Interrupted

pytestmark = pytest.mark.numbers

NEVER = Cancellation()
BY_OPERATIONS = pytest.mark.cpu_only("a captured pass takes no memory between its operations")
VOCAB_SIZE = 60
TOKENS = [int(token) for token in np.random.default_rng(5).integers(0, VOCAB_SIZE, 120)]
BRANCHING = TokenTree((10, 11, 12, 13, 14, 15, 16), (0, 0, 1, 1, 3, 2, 5))


def answers(model, asks):
    """Rows of each ask, after as many forwards as it takes; and how many."""
    results = [None] * len(asks)
    forwards = 0
    while missing := [index for index, rows in enumerate(results) if rows is None]:
        given = model.forward([asks[index] for index in missing])
        for index, rows in zip(missing, given, strict=True):
            results[index] = rows
        forwards += 1
    return results, forwards


def test_prefills_trees_and_single_tokens_share_a_forward(load, architecture, plain):
    model = load(architecture)
    prefixes = [
        TOKENS[start : start + length]
        for start, length in ((0, 45), (7, 20), (3, 90), (50, 1), (9, 33), (30, 60))
    ]
    trees = [EMPTY, BRANCHING, TokenTree.chain([3, 1, 4]), BRANCHING, EMPTY, EMPTY]
    sequences = [model.open(prefix, NEVER, room=8) for prefix in prefixes]
    for index in (4, 5):  # decode: their prefixes are held already
        sequences[index].score(EMPTY)
        prefixes[index] = [*prefixes[index], 5]
        sequences[index].close(())
        sequences[index] = model.open(prefixes[index], NEVER, room=8)
    rows = model.forward([ForwardRequest(*pair) for pair in zip(sequences, trees, strict=True)])
    for prefix, tree, got in zip(prefixes, trees, rows, strict=True):
        plain.assert_says(got, plain.rows(prefix, tree))


@pytest.mark.parametrize("num_streams", [1, 3, 12])
def test_streams_of_any_lengths_decode_together(load, architecture, plain, num_streams):
    model = load(architecture)
    prefixes = [TOKENS[start : 2 + start + 7 * start] for start in range(num_streams)]
    for _ in range(3):  # each stream's blocks lie between those of others
        sequences = [model.open(prefix, NEVER, room=4) for prefix in prefixes]
        rows, _ = answers(model, [ForwardRequest(sequence, EMPTY) for sequence in sequences])
        for prefix, sequence, got in zip(prefixes, sequences, rows, strict=True):
            plain.assert_says(got, plain.rows(prefix, EMPTY))
            sequence.close(())
            prefix.append(int(got[-1].argmax()))
    assert model.pool.num_used == 0


def test_long_prefix_does_not_hold_up_the_others(load, architecture, plain):
    model = load(architecture, chunk_tokens=40)
    first, second = TOKENS[:100], TOKENS[10:60]
    short = TOKENS[20:30]
    asks = [
        ForwardRequest(model.open(prefix, NEVER, room=8), EMPTY)
        for prefix in (first, second, short)
    ]
    rows = model.forward(asks)
    assert [part is None for part in rows] == [True, True, False]
    plain.assert_says(rows[2], plain.rows(short, EMPTY))
    rows, forwards = answers(model, asks[:2])
    assert forwards == 3  # 60 tokens of the first and 50 of the second are left, 40 a forward
    plain.assert_says(rows[0], plain.rows(first, EMPTY))
    plain.assert_says(rows[1], plain.rows(second, EMPTY))


def test_accepted_branch_is_moved_before_its_blocks_are_used_again(load, architecture, plain):
    model = load(architecture, cache_tokens=7 * BLOCK_TOKENS)
    prefix = TOKENS[:30]
    sequence = model.open(prefix, NEVER, room=8)
    sequence.score(BRANCHING)
    sequence.close((2, 6))
    kept = [*prefix, 11, 15, 9]
    others = [model.open(tokens, NEVER, room=8) for tokens in (kept, TOKENS[50:75])]
    assert others[0].num_cached_tokens == len(kept) - 1
    rows = model.forward([ForwardRequest(other, BRANCHING) for other in others])
    plain.assert_says(rows[0], plain.rows(kept, BRANCHING))
    plain.assert_says(rows[1], plain.rows(TOKENS[50:75], BRANCHING))


def test_prefix_at_work_is_shared_with_whoever_comes(load, architecture, plain):
    model = load(architecture)
    first = model.open(TOKENS[:50], NEVER, room=8)
    first.score(EMPTY)
    prefixes = [[*TOKENS[:48], 1, token] for token in range(4)]
    sequences = [model.open(prefix, NEVER, room=8) for prefix in prefixes]
    assert [sequence.num_cached_tokens for sequence in sequences] == [48] * 4
    assert model.pool.num_shared >= 3
    rows = model.forward([ForwardRequest(sequence, BRANCHING) for sequence in sequences])
    for prefix, got in zip(prefixes, rows, strict=True):
        plain.assert_says(got, plain.rows(prefix, BRANCHING))


def test_forward_that_nobody_wants_stops_and_may_be_asked_again(load, architecture, plain):
    model = load(architecture)
    cancelled = Cancellation()
    cancelled.set()
    prefix = TOKENS[:45]
    sequence = model.open(prefix, cancelled, room=8)
    with pytest.raises(Interrupted):
        model.forward([ForwardRequest(sequence, EMPTY)])
    assert sequence.num_computed_tokens == 0
    cancelled._is_set = False
    plain.assert_says(sequence.score(BRANCHING), plain.rows(prefix, BRANCHING))


def test_forward_goes_on_while_one_of_many_is_wanted(load):
    model = load()
    cancelled = Cancellation()
    cancelled.set()
    asks = [
        ForwardRequest(model.open(TOKENS[:20], each, room=8), EMPTY) for each in (cancelled, NEVER)
    ]
    assert all(len(rows) == 1 for rows in model.forward(asks))


def test_interrupted_prefill_leaves_what_it_computed_and_no_block_in_use(load):
    model = load(chunk_tokens=20)
    sequence = model.open(TOKENS[:100], NEVER, room=8)
    assert model.forward([ForwardRequest(sequence, EMPTY)]) == [None]
    sequence.close(())
    assert model.pool.num_used == 0
    assert model.open(TOKENS[:100], NEVER, room=8).num_cached_tokens == 20


def test_prefix_without_room_is_refused_and_nothing_is_lost(load):
    model = load(cache_tokens=5 * BLOCK_TOKENS)
    sequence = model.open(TOKENS[:40], NEVER, room=8)
    with pytest.raises(NoRoom):
        model.open(TOKENS[50:90], NEVER, room=8)
    with pytest.raises(TooLarge):
        model.open(TOKENS, NEVER, room=8)
    sequence.close(())
    model.open(TOKENS[50:90], NEVER, room=8).close(())
    assert model.pool.num_used == 0


def test_prefix_left_out_of_a_full_chunk_keeps_the_forward_wanted(load):
    model = load(chunk_tokens=30)
    cancelled = Cancellation()
    first = model.open(TOKENS[:60], cancelled, room=8)
    second = model.open(TOKENS[60:90], NEVER, room=8)
    cancelled.set()
    assert model.forward([ForwardRequest(first, EMPTY), ForwardRequest(second, EMPTY)]) == [
        None,
        None,
    ]


def test_trees_that_find_no_room_in_a_forward_wait_for_the_next(
    load, architecture, plain, monkeypatch
):
    monkeypatch.setattr(forward_plan, "TREE_TOKENS", 2 * len(BRANCHING))
    model = load(architecture)
    prefixes = [TOKENS[:length] for length in (20, 21, 40, 5)]
    trees = [BRANCHING, BRANCHING, BRANCHING, EMPTY]
    sequences = [model.open(prefix, NEVER, room=len(BRANCHING)) for prefix in prefixes]
    asks = [ForwardRequest(*pair) for pair in zip(sequences, trees, strict=True)]
    first = model.forward(asks)
    assert [rows is not None for rows in first] == [True, True, False, True]
    rows = [*first[:2], *model.forward([asks[2]]), first[3]]
    for prefix, tree, got in zip(prefixes, trees, rows, strict=True):
        plain.assert_says(got, plain.rows(prefix, tree))


def test_tree_that_is_too_large_for_a_forward_has_one_for_itself(
    load, architecture, plain, monkeypatch
):
    monkeypatch.setattr(forward_plan, "TREE_TOKENS", len(BRANCHING) - 1)
    model = load(architecture)
    sequences = [model.open(TOKENS[:length], NEVER, room=len(BRANCHING)) for length in (20, 21)]
    asks = [ForwardRequest(sequence, BRANCHING) for sequence in sequences]
    assert [rows is not None for rows in model.forward(asks)] == [True, False]
    (rows,) = model.forward(asks[1:])
    plain.assert_says(rows, plain.rows(TOKENS[:21], BRANCHING))


@pytest.mark.parametrize(
    "failing",
    [1, 2, *(pytest.param(each, marks=BY_OPERATIONS) for each in (3, 4, 5))],
)
def test_copies_outlive_a_forward_that_fails(load, plain, architecture, monkeypatch, failing):
    model = load(architecture)
    prefix = TOKENS[:10]
    sequence = model.open(prefix, NEVER, room=len(BRANCHING))
    sequence.score(BRANCHING)
    leaf = len(BRANCHING)
    kept = BRANCHING.path(leaf)
    assert kept != tuple(range(1, len(kept) + 1))  # so that its KV has to be moved
    sequence.close(kept)
    num_calls = 0
    really_indexes = model._memory.stores[0].indexes

    def out_of_memory(indexes):
        nonlocal num_calls
        num_calls += 1
        if num_calls == failing:
            raise MemoryError
        return really_indexes(indexes)

    with monkeypatch.context() as broken:
        broken.setattr(model._memory.stores[0], "indexes", out_of_memory)
        other = model.open(TOKENS[50:55], NEVER, room=0)
        with pytest.raises(MemoryError):
            other.score(EMPTY)
        other.close(())
    longer = [*prefix, *BRANCHING.tokens_on(kept), 7]
    again = model.open(longer, NEVER, room=0)
    assert again.num_cached_tokens == len(longer) - 1
    plain.assert_says(again.score(EMPTY), plain.rows(longer, EMPTY))


def test_overflow_of_one_sequence_stays_out_of_those_that_share_its_forward(load):
    model = load()
    with torch.no_grad():
        model._model.get_input_embeddings().weight[15] = torch.inf
    prefixes = [[15, 1, 2], [3] * 20, [4] * 50]
    for _ in range(2):  # prefills, then single tokens in one group
        sequences = [model.open(tokens, NEVER, room=1) for tokens in prefixes]
        rows = model.forward([ForwardRequest(sequence, EMPTY) for sequence in sequences])
        assert [bool(np.isfinite(row).all()) for row in rows] == [False, True, True]
        for sequence in sequences:
            sequence.close(())
