"""Trees scored through the cache against the plain model on each path."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation

pytestmark = pytest.mark.numbers

NEVER = Cancellation()

VOCAB_SIZE = 60
PREFIX = [int(token) for token in np.random.default_rng(5).integers(0, VOCAB_SIZE, 45)]
#     0 -+- 1 -+- 3 --- 5 --- 7
#        |     +- 4
#        +- 2 --- 6
BRANCHING = TokenTree((10, 11, 12, 13, 14, 15, 16), (0, 0, 1, 1, 3, 2, 5))


@pytest.fixture
def model(load, architecture):
    return load(architecture)


def check(sequence, plain, prefix: Sequence[int], *steps: TokenTree) -> None:
    """Scores ``steps`` in turn, each a tree that begins with the one before."""
    rows = np.concatenate([sequence.score(tree) for tree in steps])
    plain.assert_says(rows, plain.rows(prefix, steps[-1]))


@st.composite
def trees(draw, max_nodes: int = 10) -> TokenTree:
    tree = EMPTY
    for node in range(draw(st.integers(0, max_nodes))):
        parent = draw(st.integers(0, node))
        taken = {tree.token_ids[child - 1] for child in tree.children(parent)}
        free = st.integers(0, VOCAB_SIZE - 1).filter(lambda token, taken=taken: token not in taken)
        tree = tree.extend([draw(free)], [parent])
    return tree


def cut(tree: TokenTree, num_nodes: int) -> TokenTree:
    return TokenTree(tree.token_ids[:num_nodes], tree.parents[:num_nodes])


@pytest.mark.parametrize(
    "steps",
    [
        [EMPTY],
        [TokenTree.chain([3, 1, 4, 1, 5])],
        [BRANCHING],
        [EMPTY, cut(BRANCHING, 2), cut(BRANCHING, 4), BRANCHING],
        [TokenTree.chain([3]), TokenTree.chain([3, 1, 4])],
        [TokenTree.chain([3, 1]), TokenTree((3, 1, 5, 2), (0, 1, 0, 3))],
        [cut(BRANCHING, 1), BRANCHING],
    ],
    ids=["prefix", "chain", "tree", "tree_by_level", "chain_by_step", "branch_later", "tree_later"],
)
def test_every_node_sees_the_prefix_and_its_ancestors_alone(model, plain, steps):
    check(model.open(PREFIX, NEVER), plain, PREFIX, *steps)


def test_prefix_of_one_token_is_scored(model, plain):
    check(model.open([7], NEVER), plain, [7], BRANCHING)


def test_scoring_the_same_tree_again_gives_no_rows(model):
    sequence = model.open(PREFIX, NEVER)
    sequence.score(BRANCHING)
    computed = sequence.num_computed_tokens
    assert sequence.score(BRANCHING).shape == (0, VOCAB_SIZE)
    assert sequence.num_computed_tokens == computed


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tree=trees(),
    cuts=st.lists(st.integers(0, 10), max_size=2),
    prefix=st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=40),
    shared=st.integers(0, 40),
    data=st.data(),
)
def test_any_tree_in_any_steps_on_any_cache_equals_the_plain_model(
    model, plain, tree, cuts, prefix, shared, data
):
    base = [*prefix[:shared], *range(20)]
    first = model.open(base, NEVER)
    first.score(BRANCHING)
    first.close((1, 3))
    sequence = model.open(prefix, NEVER)
    check(sequence, plain, prefix, *(cut(tree, n) for n in sorted(cuts) if n < len(tree)), tree)
    leaf = data.draw(st.integers(0, len(tree)))
    sequence.close(tree.path(leaf))
    grown = [*prefix, *tree.tokens_on(tree.path(leaf)), 9]
    check(model.open(grown, NEVER), plain, grown, tree)


def test_kept_branch_is_cached_and_the_rest_is_not(model, plain):
    sequence = model.open(PREFIX, NEVER)
    sequence.score(BRANCHING)
    assert (sequence.num_cached_tokens, sequence.num_computed_tokens) == (0, 45 + 7)
    sequence.close((2, 6))

    grown = [*PREFIX, 11, 15, 40]
    after = model.open(grown, NEVER)
    check(after, plain, grown, BRANCHING)
    assert (after.num_cached_tokens, after.num_computed_tokens) == (47, 1 + 7)

    rejected = [*PREFIX, 10, 12, 40]
    other = model.open(rejected, NEVER)
    check(other, plain, rejected, BRANCHING)
    assert (other.num_cached_tokens, other.num_computed_tokens) == (45, 3 + 7)


def test_last_prefix_token_is_computed_again_for_its_logits(model, plain):
    first = model.open(PREFIX, NEVER)
    first.score(EMPTY)
    first.close(())
    again = model.open(PREFIX, NEVER)
    check(again, plain, PREFIX, BRANCHING)
    assert (again.num_cached_tokens, again.num_computed_tokens) == (44, 1 + 7)


def test_rollback_to_a_shorter_prefix_computes_almost_nothing(model, plain):
    first = model.open(PREFIX, NEVER)
    first.score(TokenTree.chain([3, 1, 4]))
    first.close((1, 2, 3))
    shorter = PREFIX[:33]
    sequence = model.open(shorter, NEVER)
    check(sequence, plain, shorter, TokenTree.chain([9, 9]))
    assert (sequence.num_cached_tokens, sequence.num_computed_tokens) == (32, 1 + 2)


@pytest.mark.parametrize("length", [3, 4, 5, 8, 9, 45])
def test_long_prompt_goes_through_in_chunks(load, architecture, plain, length):
    model = load(architecture, chunk_tokens=4)
    prefix = PREFIX[:length]
    sequence = model.open(prefix, NEVER)
    check(sequence, plain, prefix, cut(BRANCHING, 3), BRANCHING)
    assert sequence.num_computed_tokens == length + len(BRANCHING)
    sequence.close((1, 3, 5))
    grown = [*prefix, 10, 12, 14, *PREFIX[20:30]]
    check(model.open(grown, NEVER), plain, grown, BRANCHING)


def test_sessions_that_share_a_beginning_never_disturb_each_other(model, plain):
    first = model.open(PREFIX, NEVER)
    first.score(EMPTY)
    first.close(())
    prefixes = [[*PREFIX[:40], token] for token in (1, 2)]
    sequences = [model.open(prefix, NEVER) for prefix in prefixes]
    for size in (0, 2, 5, 7):  # in turn, on views of one snapshot
        for sequence, prefix in zip(sequences, prefixes, strict=True):
            rows = sequence.score(cut(BRANCHING, size))
            want = plain.rows(prefix, cut(BRANCHING, size))[-len(rows) :]
            plain.assert_says(rows, want)
    sequences[0].close((1, 3, 5, 7))
    check(model.open(PREFIX, NEVER), plain, PREFIX, BRANCHING)
    sequences[1].close((2, 6))
    check(model.open(PREFIX, NEVER), plain, PREFIX, BRANCHING)


def test_blocks_in_use_are_kept_while_all_others_are_evicted(load, architecture, plain):
    model = load(architecture, cache_tokens=9 * BLOCK_TOKENS)
    first = model.open(PREFIX, NEVER, room=7)
    first.score(EMPTY)
    first.close(())
    sequence = model.open(PREFIX, NEVER, room=7)
    for shift in range(1, 4):
        other = model.open([*PREFIX[shift:], *PREFIX[:shift]], NEVER, room=7)
        other.score(BRANCHING)
        other.close(())
    assert model.pool.num_evicted
    check(sequence, plain, PREFIX, BRANCHING)
    sequence.close((1,))
    check(model.open(PREFIX, NEVER, room=7), plain, PREFIX, BRANCHING)


def test_scorer_closed_before_scoring_leaves_the_cache_alone(model):
    model.open(PREFIX, NEVER).close(())
    sequence = model.open(PREFIX, NEVER)
    assert sequence.num_cached_tokens == 0
