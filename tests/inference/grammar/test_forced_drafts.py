"""Draft with a grammar that forces tokens, over gRPC, on the shipped drafter: what it costs."""

from __future__ import annotations

import pytest
from tests.devices import device
from tests.inference.grammar.vocabularies import shipped_vocabulary

from specmesh import models
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.mesh.v1alpha1 import drafter_pb2, drafter_pb2_grpc, tokens_pb2
from specmesh.serving.codec.wire import read_distributions, write_sampling

pytestmark = pytest.mark.usefixtures("patient_drafts")

PREFIX = [3, *range(300, 339)]


@pytest.fixture
def model():
    folder = str(models.path(models.DRAFTER))
    return TransformersModel.load(folder, dtype="float32", device=device(), cache_bytes=1 << 24)


async def drafted(channel, regex, depth, mode=AcceptanceMode.COUPLED, levels_per_message=1):
    """All that the drafter sends of a chain behind ``PREFIX``."""
    grammar = Grammar(GrammarKind.REGEX, regex)
    sampling = Sampling(seed=5, mode=mode, grammar=grammar, num_prompt_tokens=len(PREFIX))
    message = drafter_pb2.DraftRequest(
        prefix=tokens_pb2.Prefix(token_ids=PREFIX),
        depth=depth,
        levels_per_message=levels_per_message,
        sampling=write_sampling(sampling),
    )
    drafts = drafter_pb2_grpc.DrafterServiceStub(channel).Draft(message, timeout=20)
    return [response async for response in drafts]


@pytest.mark.parametrize("mode", AcceptanceMode)
async def test_a_draft_that_is_all_forced_costs_nothing(serve, model, mode):
    digit = shipped_vocabulary()[1].token_to_id("7")
    async with serve(model) as channel:
        (whole,) = await drafted(channel, "7", 3, mode, levels_per_message=3)
        parts = await drafted(channel, "7", 3, mode)
    assert list(whole.token_ids) == [digit, 0, 0]
    assert len(parts) == 3
    for cost in (each.cost for each in (whole, *parts)):
        assert (cost.forward_ms, cost.num_cached_tokens, cost.num_computed_tokens) == (0, 0, 0)
    certain = read_distributions(whole.draft_distributions)
    assert sorted(certain) == ([0, 1, 2] if mode is AcceptanceMode.REJECTION else [])
    assert all(each.probabilities.tolist() == [1.0] for each in certain.values())


async def test_the_first_forward_pass_reads_the_prefix_and_what_was_forced(serve, model):
    async with serve(model) as channel:
        costs = [each.cost for each in await drafted(channel, "7[a-z]{99}", 4)]
        again = [each.cost for each in await drafted(channel, "7[a-z]{99}", 4)]
    assert costs[0].num_batch_calls == 0
    # Of the 39 before the last, whole blocks; the last; and the forced token.
    assert [cost.num_computed_tokens for cost in costs] == [0, 32 + 2, 1, 1]
    assert [cost.num_computed_tokens for cost in again] == [0, 2, 1, 1]
    assert [cost.num_cached_tokens for cost in again] == [0, 32, 0, 0]
