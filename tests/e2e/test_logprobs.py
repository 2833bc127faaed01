"""Log-probabilities from real replicas, whose forwards have many shapes."""

import grpc
import pytest
import pytest_asyncio
import torch
from transformers import AutoModelForCausalLM

from specmesh import models
from specmesh.orchestrator.strategies import LOSSLESS
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1.generation_pb2_grpc import GenerationServiceStub

NUM_TOKENS = 20
NUM_TOP = 5
SAMPLINGS = {
    "greedy": {"temperature": 0},
    "coupled": {"temperature": 0.8, "seed": 7},
    "rejection": {"temperature": 0.8, "seed": 7, "acceptance_mode": "ACCEPTANCE_MODE_REJECTION"},
}


@pytest_asyncio.fixture
async def stub(mesh):
    async with grpc.aio.insecure_channel(mesh.orchestrator.address) as channel:
        yield GenerationServiceStub(channel)


@pytest.fixture(scope="module")
def model():
    folder = models.path(models.TARGET)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


async def ask(stub, prompt, strategy, sampling):
    """The tokens, their log-probabilities and the statistics of an answer."""
    request = pb.GenerateRequest(
        tokens={"ids": prompt},
        sampling=sampling,
        stopping={"max_tokens": NUM_TOKENS, "ignore_end_of_text": True},
        speculation={"strategy": strategy},
        num_top_logprobs=NUM_TOP,
    )
    tokens, logprobs = [], []
    async for response in stub.Generate(request, timeout=120):
        tokens += response.event.chunk.token_ids
        logprobs += response.event.chunk.logprobs
    return tokens, logprobs, response.event.finished.stats


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=list(SAMPLINGS))
async def test_they_are_those_of_the_model_alone_under_every_strategy(stub, model, sampling):
    prompt = [int(token) for token in torch.arange(100, 150)]
    alone = None
    for strategy in LOSSLESS:  # autoregressive first
        tokens, logprobs, _ = await ask(stub, prompt, strategy, sampling)
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + tokens])).logits[0]
        rows = logits[len(prompt) - 1 : -1].log_softmax(dim=-1)
        expected = rows[range(NUM_TOKENS), tokens].tolist()
        chosen = [each.chosen.logprob for each in logprobs]
        assert chosen == pytest.approx(expected, abs=1e-4)
        for row, told in zip(rows, logprobs, strict=True):
            best = row.topk(NUM_TOP).values.tolist()
            assert [each.logprob for each in told.top] == pytest.approx(best, abs=1e-4)
        if "acceptance_mode" not in sampling:
            alone = alone or (tokens, chosen)
            assert tokens == alone[0]
            assert chosen == pytest.approx(alone[1], abs=1e-4)


async def test_what_is_cached_of_a_prompt_is_told_when_it_comes_again(stub):
    prompt = [int(token) for token in torch.arange(500, 600)]
    *_, stats = await ask(stub, prompt, "autoregressive", SAMPLINGS["greedy"])
    assert stats.num_cached_tokens == 0
    *_, stats = await ask(stub, prompt, "autoregressive", SAMPLINGS["greedy"])
    assert stats.num_cached_tokens == 96  # whole blocks
