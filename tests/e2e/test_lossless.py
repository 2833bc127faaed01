"""The mesh says what the target alone says."""

import asyncio

import pytest
import torch
from tests.e2e.answers import all_of, answer, said
from transformers import AutoModelForCausalLM, AutoTokenizer

from specmesh import models
from specmesh.client import AcceptanceMode

NUM_PROMPTS = 24
NUM_TOKENS = 64
BATCH_SIZE = 12
NUM_AT_ONCE = 10


@pytest.fixture(scope="module")
def reference(prompts):
    """By prompt: the tokens that transformers' own greedy decoding generates."""
    folder = models.path(models.TARGET)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    tokenizer.pad_token = tokenizer.eos_token
    expected = {}
    for first in range(0, NUM_PROMPTS, BATCH_SIZE):
        batch = prompts[first : first + BATCH_SIZE]
        asked = tokenizer(batch, return_tensors="pt", padding=True, return_token_type_ids=False)
        generated = model.generate(
            **asked,
            do_sample=False,
            max_new_tokens=NUM_TOKENS,
            pad_token_id=tokenizer.pad_token_id,
        )
        answers = generated[:, asked.input_ids.shape[1] :].tolist()
        for prompt, token_ids in zip(batch, answers, strict=True):
            expected[prompt] = tuple(until(tokenizer.eos_token_id, token_ids))
    return expected


def until(last, token_ids):
    return token_ids[: token_ids.index(last) + 1] if last in token_ids else token_ids


async def test_greedy_answers_equal_those_of_transformers(client, reference):
    slots = asyncio.Semaphore(NUM_AT_ONCE)

    async def ask(prompt):
        async with slots:
            options = {"temperature": 0, "max_tokens": NUM_TOKENS, "strategy": "speculative"}
            # A lookahead of its own choice is 0 where other work has the drafter's core.
            return await answer(client, prompt, **options, lookahead=4)

    results = await all_of(*map(ask, reference))
    assert len(results) == NUM_PROMPTS
    assert [result.token_ids for result in results] == list(reference.values())
    assert sum(result.stats.num_accepted_tokens for result in results) > 0


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0},
        {"temperature": 0.8},
        {"temperature": 0.8, "top_k": 20},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    ],
    ids=lambda sampling: "-".join(f"{name}={value}" for name, value in sampling.items()),
)
async def test_every_strategy_gives_the_same_answer(client, prompts, sampling):
    options = {**sampling, "seed": 11, "max_tokens": 32}
    for prompt in prompts[:2]:
        alone, *speculated = await all_of(
            answer(client, prompt, **options, strategy="autoregressive"),
            answer(client, prompt, **options, strategy="speculative"),
            answer(client, prompt, **options, strategy="speculative", lookahead=9),
            answer(client, prompt, **options, strategy="tree"),
            answer(client, prompt, **options, strategy="tree", width=24),
            answer(client, prompt, **options, strategy="heads-and-drafter"),
        )
        assert [said(result) for result in speculated] == [said(alone)] * 5
        assert alone.stats.num_verified_tokens == 0
        # Not each answer's: where forwards of several tokens are slow, few drafts pay.
        assert sum(result.stats.num_verified_tokens for result in speculated) > 0


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.9}])
async def test_strategies_that_work_ahead_give_it_with_second_choices_too(
    client, prompts, sampling
):
    """The target has heads, of which ``dsi`` makes use."""
    options = {**sampling, "seed": 11, "max_tokens": 32}
    alone, *ahead = await all_of(
        answer(client, prompts[0], **options, strategy="autoregressive"),
        answer(client, prompts[0], **options, strategy="dsi"),
        # With a lookahead, drafts are made also where they do not pay: beside other answers.
        answer(client, prompts[0], **options, strategy="dsi", width=8, lookahead=4),
        answer(client, prompts[0], **options, strategy="branch-prediction", width=8, lookahead=4),
    )
    assert [said(result) for result in ahead] == [said(alone)] * 3
    assert sum(result.stats.num_accepted_tokens for result in ahead) > 0


async def test_another_seed_gives_another_answer(client, prompts):
    results = await all_of(
        *(answer(client, prompts[0], temperature=0.8, seed=s, max_tokens=40) for s in range(3))
    )
    assert len({result.token_ids for result in results}) > 1


@pytest.mark.parametrize("sampling", [{}, {"top_k": 20, "top_p": 0.9}], ids=["all", "cut"])
async def test_rejection_mode_answers_within_the_vocabulary(client, prompts, sampling):
    (served,) = await client.list_models()
    options = {**sampling, "temperature": 0.8, "seed": 5, "max_tokens": 40}
    mode = AcceptanceMode.REJECTION
    results = await all_of(
        *(
            answer(client, prompt, **options, acceptance_mode=mode, **way)
            for prompt in prompts[:4]
            for way in (
                {"strategy": "speculative", "lookahead": 4},
                {"strategy": "tree"},
                {"strategy": "heads-and-drafter"},
            )
        )
    )
    for result in results:
        assert 0 < len(result.token_ids) <= 40
        assert max(result.token_ids) < served.target.vocab_size
    assert sum(result.stats.num_verified_tokens for result in results) > 0
