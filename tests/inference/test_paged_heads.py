"""Drafts of heads that attend to the text, from KV in blocks, against the same network without."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.devices import device
from tests.inference.conftest import KV_BYTES
from tests.inference.random_heads import save_random_eagle3
from tests.inference.unpaged_head import Unpaged

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.blocks.pool import NoRoom, TooLarge
from specmesh.inference.engine.heads.target_with_heads import TargetWithHeads
from specmesh.inference.model import Cancellation, ForwardRequest, Interrupted
from specmesh.inference.models.heads.serving import serve_heads
from specmesh.inference.models.probe import PROBE_BLOCKS
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.inference.service.warm_up import warm_up

pytestmark = pytest.mark.numbers

NEVER = Cancellation()
TOKENS = [int(token) for token in np.random.default_rng(5).integers(0, 60, 120)]
HEAD_BYTES = 2 * 2 * 2 * 8 * 4
"""What a token takes beside the target's KV: keys and values of two KV heads, of its pair and of
what it contributes to the next."""
BRANCHING = TokenTree((10, 11, 12, 13, 14, 15, 16), (0, 0, 1, 1, 3, 2, 5))
LEVELS = [
    EMPTY,
    TokenTree((5, 6), (0, 0)),
    TokenTree((5, 6, 7, 8, 9), (0, 0, 2, 1, 2)),
    TokenTree((5, 6, 7, 8, 9, 3, 4), (0, 0, 2, 1, 2, 4, 5)),
]
"""A draft as it grows, whose branches cross."""
ROOM = len(LEVELS[-1])


@pytest.fixture(scope="module")
def load_with_head(folders, architecture, tmp_path_factory):
    """Loads a tiny target and a random head with an empty cache."""
    head = save_random_eagle3(folders[architecture], tmp_path_factory.mktemp("eagle3"))
    return partial(load, folders[architecture], head)


def load(
    target: Path, head: Path, cache_tokens: int = 1 << 13, chunk_tokens: int = 256
) -> TargetWithHeads:
    model = TransformersModel.load(
        str(target),
        dtype="float32",
        device=device(),
        cache_bytes=cache_tokens * (KV_BYTES[target.name] + HEAD_BYTES),
        chunk_tokens=chunk_tokens,
        heads_for=partial(serve_heads, head),
    )
    assert model.heads is not None
    return TargetWithHeads(model, model.heads)


@pytest.fixture(scope="module")
def unpaged(folders, architecture):
    """What the paged head must say."""
    return Unpaged(folders[architecture])


def verified(model, prefix, tree=EMPTY, keep=()):
    """A closed sequence that has scored ``tree`` below ``prefix`` and accepted ``keep``."""
    sequence = model.open(prefix, NEVER, len(tree))
    sequence.score(tree)
    sequence.close(keep)
    return sequence


def assert_drafts(model, unpaged, sequence, text, node=0):
    """A draft below the last token of ``text``, which was chosen after ``node``."""
    draft = model.open_draft(sequence, node, text[-1], ROOM)
    first = 0
    for tree in LEVELS:
        unpaged.assert_drafts(draft.score(tree), text, tree, first)
        first = len(tree) + 1
    draft.close(())


@pytest.mark.parametrize(
    "changes",
    [
        {"fuse_norm": "each", "norm_before_residual": True},
        {"fuse_norm": "whole", "norm_output": True},
        {"qk_norm": True, "attention_bias": True, "mlp_bias": True, "num_kv_heads": 1},
        {"rope": {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0}},
    ],
    ids="-".join,
)
def test_heads_of_every_make_say_what_they_do_without_blocks(folders, tmp_path, changes):
    unpaged = Unpaged(folders["llama"], **changes)
    head = save_random_eagle3(folders["llama"], tmp_path, **changes)
    model = load(folders["llama"], head)
    sequence = verified(model, TOKENS[:30], BRANCHING, (2, 6))
    text = [*TOKENS[:30], *BRANCHING.tokens_on((2, 6)), 3]
    assert_drafts(model, unpaged, sequence, text, 6)
    assert_drafts(model, unpaged, verified(model, text), [*text, 4])


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 40])
def test_a_draft_attends_to_the_text_and_to_its_own_path(load_with_head, unpaged, length):
    model = load_with_head()
    prefix = TOKENS[:length]
    assert_drafts(model, unpaged, verified(model, prefix), [*prefix, 3])
    assert model.pool.num_used == 0


@pytest.mark.parametrize("keep", [(), (1,), (2, 6), (1, 3, 5, 7)])
def test_of_a_verified_tree_a_draft_sees_what_was_accepted(load_with_head, unpaged, keep):
    model = load_with_head()
    prefix = TOKENS[:30]
    sequence = verified(model, prefix, BRANCHING, keep)
    text = [*prefix, *BRANCHING.tokens_on(keep), 3]
    assert_drafts(model, unpaged, sequence, text, keep[-1] if keep else 0)


def test_rounds_follow_each_other_from_cached_text(load_with_head, unpaged):
    """Only the first tokens of each round have states that an earlier forward pass has fused."""
    model = load_with_head()
    text = TOKENS[:10]
    for keep in [(2, 6), (), (1, 4), (1,), (2,), (1, 3, 5)] * 2:
        sequence = verified(model, text, BRANCHING, keep)
        assert sequence.num_cached_tokens in (0, len(text) - 1)
        text += [*BRANCHING.tokens_on(keep), 3]
        assert_drafts(model, unpaged, sequence, text, keep[-1] if keep else 0)


def test_a_prompt_in_chunks_is_read_along_with_them(load_with_head, unpaged):
    model = load_with_head(chunk_tokens=20)
    prefix = TOKENS[:100]
    assert_drafts(model, unpaged, verified(model, prefix), [*prefix, 3])


def test_texts_that_never_drafted_are_known_when_they_do(load_with_head, unpaged):
    model = load_with_head()
    for length in (20, 21, 37):
        verified(model, TOKENS[:length])
    assert_drafts(model, unpaged, verified(model, TOKENS[:38]), [*TOKENS[:38], 3])


def test_drafts_together_are_those_apart(load_with_head, unpaged):
    model = load_with_head()
    prefixes = [TOKENS[start : start + length] for start, length in ((0, 45), (7, 5), (3, 90))]
    drafts = [
        model.open_draft(verified(model, prefix), 0, token, ROOM)
        for prefix in prefixes
        for token in (3, 4)  # two of each: one takes over the end of the text, one copies it
    ]
    texts = [[*prefix, token] for prefix in prefixes for token in (3, 4)]
    for draft in drafts[::2]:  # so that drafts of different depths share a step
        draft.score(EMPTY)
    numbers = [1, 0] * 3
    for _ in range(len(LEVELS) - 1):
        trees = [LEVELS[number] for number in numbers]
        rows = model.forward(list(map(ForwardRequest, drafts, trees)))
        for got, text, tree, number in zip(rows, texts, trees, numbers, strict=True):
            first = len(LEVELS[number - 1]) + 1 if number else 0
            unpaged.assert_drafts(got, text, tree, first)
        numbers = [number + 1 for number in numbers]
    for draft in drafts:
        draft.close(())
    assert model.pool.num_used == 0


def test_sessions_of_any_kind_draft_the_same_in_little_memory(load_with_head, unpaged):
    """Rounds of sessions that fork, roll back, and drive each other's blocks out."""
    model = load_with_head(cache_tokens=8 * BLOCK_TOKENS)
    rng = random.Random(11)
    texts = [TOKENS[start : start + 20] for start in (0, 30)]
    for _ in range(25):
        text = list(rng.choice(texts))
        if rng.random() < 0.4:  # another branch from some place in it
            text = [*text[: rng.randrange(5, len(text))], rng.randrange(60)]
        keep = rng.choice([(), (1,), (2, 6), (1, 3, 5, 7), (1, 4)])
        sequence = verified(model, text, BRANCHING, keep)
        text += [*BRANCHING.tokens_on(keep), rng.randrange(60)]
        assert_drafts(model, unpaged, sequence, text, keep[-1] if keep else 0)
        texts[rng.randrange(2)] = text if len(text) < 90 else TOKENS[50:60]
    assert model.pool.num_evicted > 0
    assert model.pool.num_used == 0


def test_a_draft_keeps_its_text_while_others_compute(load_with_head, unpaged):
    model = load_with_head(cache_tokens=6 * BLOCK_TOKENS)
    prefix = TOKENS[:40]
    draft = model.open_draft(verified(model, prefix), 0, 3, ROOM)
    unpaged.assert_drafts(draft.score(EMPTY), [*prefix, 3], EMPTY)
    verified(model, TOKENS[60:80])
    verified(model, TOKENS[90:110])
    unpaged.assert_drafts(draft.score(LEVELS[1]), [*prefix, 3], LEVELS[1], 1)
    with pytest.raises(NoRoom):
        model.open(TOKENS[50:100], NEVER, 0)
    draft.close(())
    model.open(TOKENS[50:100], NEVER, 0).close(())


def test_the_least_cache_has_room_for_the_forwards_before_the_first_call(load_with_head):
    model = load_with_head(cache_tokens=PROBE_BLOCKS * BLOCK_TOKENS)
    warm_up(model)
    assert model.pool.num_used == 0


def test_a_draft_without_room_takes_nothing(load_with_head, unpaged):
    model = load_with_head(cache_tokens=4 * BLOCK_TOKENS)
    sequence = verified(model, TOKENS[:30])
    other = model.open(TOKENS[60:70], NEVER, 20)
    with pytest.raises(NoRoom):
        model.open_draft(sequence, 0, 3, ROOM)
    other.close(())
    with pytest.raises(TooLarge):
        model.open_draft(sequence, 0, 3, 40)
    assert_drafts(model, unpaged, sequence, [*TOKENS[:30], 3])
    assert model.pool.num_used == 0


def test_a_forward_that_stopped_or_failed_leaves_no_wrong_pair(
    load_with_head, unpaged, monkeypatch
):
    model = load_with_head()
    prefix = TOKENS[:33]
    cancelled = Cancellation()
    cancelled.set()
    sequence = model.open([*TOKENS[:20], 1, 2, 3], cancelled, 0)
    with pytest.raises(Interrupted):
        sequence.score(EMPTY)
    sequence.close(())

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(model._heads._heads, "pairs", fail)
        sequence = model.open(prefix, NEVER, 0)
        with pytest.raises(MemoryError):
            sequence.score(EMPTY)
        sequence.close(())
    assert_drafts(model, unpaged, verified(model, prefix), [*prefix, 3])


def test_a_step_that_failed_can_be_run_again(load_with_head, unpaged, monkeypatch):
    model = load_with_head()
    prefix = TOKENS[:33]
    draft = model.open_draft(verified(model, prefix), 0, 3, ROOM)

    def fail(*_):
        raise MemoryError

    first = 0
    for tree in LEVELS:
        with monkeypatch.context() as patch:
            patch.setattr(model._heads._heads, "logits", fail)
            with pytest.raises(MemoryError):
                draft.score(tree)
        unpaged.assert_drafts(draft.score(tree), [*prefix, 3], tree, first)
        first = len(tree) + 1
    draft.close(())


def test_copies_that_a_draft_waits_for_are_made_when_memory_is_back(
    load_with_head, unpaged, monkeypatch
):
    model = load_with_head()
    prefix, keep = TOKENS[:30], (2, 6)
    sequence = verified(model, prefix, BRANCHING, keep)
    draft = model.open_draft(sequence, 6, 3, ROOM)
    memory = model._target._memory
    assert memory.ordered

    def fail(_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(memory.stores[0], "indexes", fail)
        with pytest.raises(MemoryError):
            draft.score(EMPTY)
    text = [*prefix, *BRANCHING.tokens_on(keep), 3]
    unpaged.assert_drafts(draft.score(EMPTY), text, EMPTY)
    draft.close(())


def test_what_overflowed_in_blocks_spoils_no_draft(load_with_head, unpaged):
    model = load_with_head(cache_tokens=8 * BLOCK_TOKENS)
    for store in model._target._memory.stores:
        store.kv.fill_(torch.nan)
        store.expect(np.arange(8 * BLOCK_TOKENS))
    prefixes = [TOKENS[start : start + length] for start, length in ((0, 2), (9, 30), (40, 20))]
    drafts = [model.open_draft(verified(model, each), 0, 3, 0) for each in prefixes]
    rows = model.forward([ForwardRequest(draft, EMPTY) for draft in drafts])
    for got, prefix in zip(rows, prefixes, strict=True):
        unpaged.assert_drafts(got, [*prefix, 3], EMPTY)


def test_cached_text_counts_once_however_many_drafts_begin_behind_it(load_with_head):
    model = load_with_head()
    sequence = verified(model, TOKENS[:30])
    counted = (model.pool.num_looked_up_tokens, model.pool.num_hit_tokens)
    model.open_draft(sequence, 0, 3, ROOM).close(())
    assert (model.pool.num_looked_up_tokens, model.pool.num_hit_tokens) == counted
