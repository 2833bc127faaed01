"""Any drafter changes the speed and never the answer; one that can't fit is refused."""

import asyncio
import itertools

import pytest
from tests.e2e.answers import all_of, answer, said
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specmesh import models
from specmesh.client import AsyncClient, FailedPrecondition

TARGET = str(models.path(models.TARGET))


@pytest.fixture
def corpus(tmp_path, prompts):
    """A folder of text to count n-grams in."""
    (tmp_path / "code.py").write_text("\n".join(prompts[-20:]))
    return str(tmp_path)


@pytest.mark.parametrize("backend", ["ngram", "prompt-lookup", "random"])
async def test_drafters_without_a_network_change_nothing(
    mesh, processes, client, prompts, corpus, backend
):
    flags = ("--corpus", corpus) if backend == "ngram" else ()
    drafter = processes.drafter("--backend", backend, "--tokenizer", TARGET, *flags)
    orchestrator = processes.orchestrator(mesh.verifiers, [drafter])
    num_verified = 0
    async with AsyncClient(orchestrator.address) as own:
        for prompt, temperature in itertools.product(prompts[:2], (0.0, 0.8)):
            options = {"temperature": temperature, "seed": 3, "max_tokens": 32}
            alone, drafted = await all_of(
                answer(client, prompt, **options, strategy="autoregressive"),
                answer(own, prompt, **options, strategy="speculative"),
            )
            assert said(drafted) == said(alone)
            num_verified += drafted.stats.num_verified_tokens
    assert num_verified > 0  # later answers draft less if the tokens of earlier ones were rejected


@pytest.fixture
def stranger(tmp_path):
    """A small model whose tokenizer is not the target's."""
    words = {"<unk>": 0, "def": 1, "return": 2}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=128,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    return str(tmp_path)


async def test_a_drafter_with_another_tokenizer_is_refused_at_start(mesh, processes, stranger):
    drafter = processes.drafter("--model", stranger)
    orchestrator = processes.orchestrator(mesh.verifiers, [drafter])
    assert await asyncio.to_thread(orchestrator.wait_exit) == 1
    reason = orchestrator.wait_event("cannot start")["reason"]
    assert f"drafter {drafter.address}" in reason
    assert "the target's vocabulary has 4096 tokens, the drafter's 3" in reason


async def test_a_mesh_without_drafters_refuses_only_strategies_that_need_one(mesh, processes):
    orchestrator = processes.orchestrator(mesh.verifiers, [])
    async with AsyncClient(orchestrator.address) as own:
        with pytest.raises(FailedPrecondition) as refused:
            await own.generate("def f(", strategy="speculative")
        assert refused.value.reason == "NO_FITTING_DRAFTER"
        alone, by_default = [
            await answer(own, "def f(", max_tokens=3, seed=1, **options)
            for options in ({"strategy": "autoregressive"}, {})
        ]
    assert said(alone) == said(by_default)
    assert len(alone.token_ids) == 3
    assert (alone.strategy, by_default.strategy) == ("autoregressive", "auto")
    assert not alone.resumable
