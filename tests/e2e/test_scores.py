"""The likelihood of a text by real replicas is that of the model alone."""

import grpc
import pytest
import pytest_asyncio
import torch
from transformers import AutoModelForCausalLM

from specmesh import models
from specmesh.client.answers.scores import score_from
from specmesh.orchestrator.answers import scores
from specmesh.v1 import scoring_pb2
from specmesh.v1.generation_pb2_grpc import GenerationServiceStub

NUM_TOP = 3


@pytest_asyncio.fixture
async def stub(mesh):
    async with grpc.aio.insecure_channel(mesh.orchestrator.address) as channel:
        yield GenerationServiceStub(channel)


@pytest.fixture(scope="module")
def model():
    folder = models.path(models.TARGET)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize("num_tokens", [1, 2, 40, scores.MAX_PIECE + 100])
async def test_it_is_that_of_the_model_alone(stub, model, num_tokens):
    tokens = [int(token) % 4000 + 5 for token in torch.arange(num_tokens) * 37]
    request = scoring_pb2.ScoreRequest(tokens={"token_ids": tokens}, num_top_logprobs=NUM_TOP)
    response = await score_from(stub.Score(request, timeout=60))
    assert list(response.token_ids) == tokens
    assert len(response.logprobs) == num_tokens - 1
    if num_tokens == 1:
        return
    with torch.inference_mode():
        rows = model(torch.tensor([tokens])).logits[0, :-1].log_softmax(dim=-1)
    expected = rows[range(num_tokens - 1), tokens[1:]].tolist()
    assert [each.chosen.token_id for each in response.logprobs] == tokens[1:]
    told = [each.chosen.logprob for each in response.logprobs]
    assert told == pytest.approx(expected, abs=1e-3)
    for row, each in zip(rows, response.logprobs, strict=True):
        best = row.topk(NUM_TOP).values.tolist()
        assert [top.logprob for top in each.top] == pytest.approx(best, abs=1e-3)


async def test_a_text_is_scored_as_its_prompt_would_be_read(stub, client):
    text = "def read(path):\n    return path\n"
    response = await score_from(stub.Score(scoring_pb2.ScoreRequest(text=text), timeout=60))
    assert response.token_ids == await client.tokenize(text)
    said = b"".join(each.chosen.bytes for each in response.logprobs).decode()
    assert text.endswith(said)
    first = response.logprobs[0].text_offset
    assert text[first:] == said
    assert response.model_fingerprint
