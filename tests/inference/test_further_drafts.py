"""A replica with heads goes on to verify its own drafts, as if each had been sent to it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.inference.test_further_verdicts import all_answers
from tests.inference.test_heads_service import (
    NEXT_DRAFT,
    ask,
    asking,
    heads_folders,
    kind,
    load_with_heads,
)
from tests.inference.test_verify_service import COUPLED, GREEDY, MODES, PREFIX, request, whole

from specmesh.decoding.noise import derived_seed
from specmesh.decoding.sampling import AcceptanceMode
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.serving.codec.wire import read_distributions

__all__ = ["heads_folders", "kind", "load_with_heads"]

NUM_FURTHER = 5
PROCESSED = {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "banned_token_ids": (3,)}


def overlap(one, other) -> float:
    """The share of the tokens of two drafts that are in both, behind the same tokens."""
    trees = [TokenTree(tuple(each.token_ids), tuple(each.parents)) for each in (one, other)]
    paths = [{t.tokens_on(t.path(node)) for node in range(1, len(t) + 1)} for t in trees]
    return len(paths[0] & paths[1]) / max(1, len(paths[0] | paths[1]))


@pytest.mark.parametrize("settings", [{}, PROCESSED], ids=["plain", "processed"])
@MODES
async def test_each_is_that_on_the_draft_before_it(load_with_heads, serve, sampling, settings):
    """With noise of its own for each draft in rejection mode, and else with that of the text."""
    sampling = replace(sampling, **settings)
    model = load_with_heads()
    model.description = replace(model.description, end_of_text_ids=())
    async with serve(model) as channel:
        message = asking(request(whole(), EMPTY, {}, sampling))
        message.num_further_verdicts = NUM_FURTHER
        told = await all_answers(channel, message)
        assert len(told) == NUM_FURTHER + 1
        text, tree, distributions = list(PREFIX), EMPTY, {}
        for number, response in enumerate(told):
            seed = NEXT_DRAFT["seed"]
            if sampling.mode is AcceptanceMode.REJECTION:
                seed = derived_seed(seed, number)
            once = request(whole(text), tree, distributions, sampling)
            alone = await ask(channel, asking(once, seed=seed))
            assert response.accepted_nodes == alone.accepted_nodes
            assert response.next_token_id == alone.next_token_id
            # Heads of random weights find many tokens equally likely but for rounding.
            assert overlap(response.next_draft, alone.next_draft) > 0.7
            text += [*tree.tokens_on(response.accepted_nodes), response.next_token_id]
            drafted = response.next_draft
            tree = TokenTree(tuple(drafted.token_ids), tuple(drafted.parents))
            distributions = read_distributions(drafted.draft_distributions)


async def test_a_tree_may_come_first(load_with_heads, serve):
    async with serve(load_with_heads()) as channel:
        message = asking(request(whole(), TokenTree((5, 6), (0, 0)), {}, GREEDY))
        message.num_further_verdicts = 2
        assert len(await all_answers(channel, message)) > 1


async def test_other_calls_do_not_wait_for_all_of_them(load_with_heads, serve):
    model = load_with_heads()
    model.max_batch = 1
    message = asking(request(whole(), EMPTY, {}, COUPLED))
    message.num_further_verdicts = 50
    async with serve(model) as channel:
        told = await asyncio.gather(*(all_answers(channel, message) for _ in range(2)))
    assert min(map(len, told)) < 50


async def test_they_end_where_the_cache_is_full(load_with_heads, serve):
    model = load_with_heads(cache_bytes=3 << 13)
    capacity = model.pool.capacity_tokens
    text = PREFIX * (capacity // len(PREFIX) + 1)
    message = asking(request(whole(text[: capacity - 30]), EMPTY, {}, GREEDY))
    message.num_further_verdicts = 100
    async with serve(model) as channel:
        told = await all_answers(channel, message)
    assert not told[-1].has_more
    assert len(told) < 100
