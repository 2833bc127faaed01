"""What a sequence that overflowed left behind in KV blocks spoils no other sequence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, ForwardRequest

pytestmark = pytest.mark.numbers

NEVER = Cancellation()
OVERFLOWING = 15
NUM_BLOCKS = 8
BRANCHING = TokenTree((10, 11, 12, 13, 14), (0, 0, 1, 1, 3))
TOKENS = [int(token) for token in np.random.default_rng(5).integers(16, 60, 120)]


@pytest.fixture
def model(load, architecture):
    """One whose every block holds what is not a number, left by a sequence that is gone."""
    model = load(architecture, cache_tokens=NUM_BLOCKS * BLOCK_TOKENS)
    with torch.no_grad():
        model._model.get_input_embeddings().weight[OVERFLOWING] = torch.inf
    sequence = model.open([OVERFLOWING] * (NUM_BLOCKS * BLOCK_TOKENS), NEVER, room=0)
    assert np.isnan(sequence.score(EMPTY)).all()
    sequence.close(())
    return model


def assert_together(model, plain, prefixes, tree):
    """Score ``tree`` after each prefix in one forward, as the plain model does."""
    sequences = [model.open(prefix, NEVER, room=len(tree)) for prefix in prefixes]
    rows = model.forward([ForwardRequest(sequence, tree) for sequence in sequences])
    for prefix, sequence, got in zip(prefixes, sequences, rows, strict=True):
        want = plain.rows(prefix, tree)
        # Where embeddings are tied, the token's own logit overflows as well.
        others = np.arange(want.shape[1]) != OVERFLOWING
        plain.assert_says(got[:, others], want[:, others])
        sequence.close(())


@pytest.mark.parametrize("tree", [EMPTY, BRANCHING], ids=["tokens", "trees"])
def test_blocks_of_one_that_overflowed_serve_sequences_of_other_lengths(model, plain, tree):
    prefixes = [TOKENS[start : start + length] for start, length in ((0, 2), (9, 30), (40, 43))]
    assert_together(model, plain, prefixes, EMPTY)
    for _ in range(3):  # as many new tokens each: one group
        prefixes = [[*prefix, 7] for prefix in prefixes]
        assert_together(model, plain, prefixes, tree)


def test_beginning_of_a_block_is_copied_into_one_of_one_that_overflowed(model, plain):
    first = model.open(TOKENS[:20], NEVER, room=0)
    first.score(EMPTY)
    prefixes = [[*TOKENS[:19], 1, 2], [*TOKENS[:19], 3, 4], TOKENS[:40]]
    for prefix in prefixes[:2]:
        sequence = model.open(prefix, NEVER, room=0)
        assert sequence.num_cached_tokens == 19
        sequence.close(())
    first.close(())
    assert_together(model, plain, prefixes, EMPTY)
    assert_together(model, plain, [[*prefix, 7] for prefix in prefixes], EMPTY)


def test_rejected_token_that_overflowed_does_not_spoil_the_rounds_that_follow(model, plain):
    prefixes = [TOKENS[:5], TOKENS[50:80]]
    assert_together(model, plain, prefixes, EMPTY)
    sequence = model.open(prefixes[0], NEVER, room=3)
    sequence.score(EMPTY)
    assert np.isnan(sequence.score(TokenTree.chain([3, OVERFLOWING, OVERFLOWING]))[1:]).all()
    sequence.close(())
    assert_together(model, plain, [[*prefix, 7] for prefix in prefixes], EMPTY)


@pytest.mark.parametrize("seen", [0, 16, 29], ids=["nothing", "a block", "nearly all"])
@pytest.mark.parametrize("tree", [EMPTY, TokenTree.chain([3, OVERFLOWING])], ids=["text", "draft"])
def test_forward_that_overflowed_leaves_nothing_to_those_who_share_its_text(
    model, plain, tree, seen
):
    text = [*TOKENS[:30], *(() if len(tree) else (OVERFLOWING,))]
    if seen:
        first = model.open(text[:seen], NEVER, room=0)
        first.score(EMPTY)
        first.close(())
    sequence = model.open(text, NEVER, room=len(tree))
    assert np.isnan(sequence.score(tree)[-1]).all()
    assert model.open(TOKENS[:30], NEVER, room=0).num_cached_tokens <= seen
    sequence.close(())
    assert_together(model, plain, [TOKENS[:30], [*TOKENS[:29], 7]], EMPTY)
