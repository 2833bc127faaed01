"""A draft token after which the model overflows fails no verification whose verdict does not need
the logits there."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
import torch
from tests.inference.test_verify_service import (
    COUPLED,
    GREEDY,
    MODES,
    NEVER,
    PREFIX,
    REJECTION,
    answer,
    ask,
    draft,
    request,
    whole,
)

from specmesh.decoding.acceptance import verify
from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.mesh.v1alpha1 import verifier_pb2
from specmesh.serving.errors import error_info

OVERFLOWING = min(set(range(60)) - set(PREFIX) - {0})


@pytest.fixture
def model(load):
    model = load()
    with torch.no_grad():
        model._model.get_input_embeddings().weight[OVERFLOWING] = torch.inf
    return model


def asked_with(load, sampling):
    """A draft with a token that overflows, its distributions, and the verdict of a model that is
    sound, which does not need what comes after that token."""
    if sampling is REJECTION:
        even = Distribution(np.arange(60), np.full(60, 1 / 60))
        tree, distributions = TokenTree.chain([3, 4, OVERFLOWING]), dict.fromkeys(range(3), even)
    else:
        tree, distributions = draft(load(), sampling)
        tree = tree.extend([OVERFLOWING, OVERFLOWING], [0, 2])
    logits = load().open(PREFIX, NEVER).score(tree)
    verdict = verify(tree, logits, sampling, len(PREFIX), distributions)
    assert OVERFLOWING not in tree.tokens_on(verdict.accepted_nodes)
    return tree, distributions, verdict


@MODES
async def test_the_verdict_is_that_of_a_model_that_does_not_overflow(load, serve, model, sampling):
    tree, distributions, verdict = asked_with(load, sampling)
    message = request(whole(), tree, distributions, sampling)
    message.num_top_logprobs = 2
    async with serve(model) as channel:
        response = await ask(channel, message)
    kind = "RECOVERED" if verdict.recovered else "BONUS"
    assert answer(response) == (
        list(verdict.accepted_nodes),
        verdict.next_token,
        verifier_pb2.NextTokenKind.Value(f"NEXT_TOKEN_KIND_{kind}"),
    )
    assert len(response.logprobs) == len(verdict.accepted_nodes) + 1
    assert response.cost.forward_ms > 0


async def test_the_text_stays_cached(load, serve, model):
    tree, distributions, verdict = asked_with(load, COUPLED)
    text = [*PREFIX, *tree.tokens_on(verdict.accepted_nodes), verdict.next_token]
    async with serve(model) as channel:
        await ask(channel, request(whole(), tree, distributions, COUPLED))
        again = await ask(channel, request(whole(text), EMPTY, {}, COUPLED))
    assert again.cost.num_cached_tokens == (len(text) - 1) // BLOCK_TOKENS * BLOCK_TOKENS


async def test_a_text_after_which_the_model_overflows_fails_with_a_draft_as_without(serve, model):
    async with serve(model) as channel:
        for tree in (EMPTY, TokenTree.chain([3, 4])):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await ask(channel, request(whole([*PREFIX, OVERFLOWING]), tree, {}, GREEDY))
            assert error_info(raised.value).reason == "LOGITS_NOT_FINITE"
