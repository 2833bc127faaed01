"""Penalties, biases, bans and warping: the mesh says what the target alone says, and that is what
transformers' own processors make it say."""

import grpc
import pytest
import torch
from tests.e2e.answers import all_of, answer, said
from transformers import AutoModelForCausalLM, AutoTokenizer

from specmesh import models
from specmesh.v1 import generation_pb2
from specmesh.v1.generation_pb2_grpc import GenerationServiceStub

NUM_TOKENS = 32
STRATEGIES = (
    {"strategy": "autoregressive"},
    {"strategy": "speculative"},
    {"strategy": "tree", "width": 12},
    {"strategy": "heads-and-drafter"},
    {"strategy": "dsi"},
    {"strategy": "branch-prediction"},
)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(models.path(models.TARGET))


@pytest.fixture(scope="module")
def target():
    return AutoModelForCausalLM.from_pretrained(
        models.path(models.TARGET), dtype=torch.float32
    ).eval()


def words(tokenizer):
    """Words that the target likes, by their tokens: as they begin a text and after a space."""
    return [
        tokenizer(text, add_special_tokens=False).input_ids
        for word in ("self", "return", "def")
        for text in (word, f" {word}")
    ]


async def test_greedy_answers_equal_those_of_transformers_own_processors(
    client, prompts, target, tokenizer
):
    bias = {5: 2.5, 70: -4.0, 300: 6.0}
    for prompt in prompts[:2]:
        asked = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        generated = target.generate(
            **asked,
            do_sample=False,
            max_new_tokens=NUM_TOKENS,
            pad_token_id=tokenizer.eos_token_id,
            repetition_penalty=1.2,
            min_new_tokens=NUM_TOKENS,
            bad_words_ids=words(tokenizer),
            sequence_bias=[[[token], value] for token, value in bias.items()],
            suppress_tokens=[11, 12],
        )
        expected = tuple(generated[0, asked.input_ids.shape[1] :].tolist())
        results = await all_of(
            *(
                answer(
                    client,
                    prompt,
                    temperature=0,
                    max_tokens=NUM_TOKENS,
                    repetition_penalty=1.2,
                    min_tokens=NUM_TOKENS,
                    bad_words=["self", "return", "def"],
                    logit_bias=bias,
                    banned_token_ids=[11, 12],
                    **strategy,
                )
                for strategy in STRATEGIES
            )
        )
        assert [result.token_ids for result in results] == [expected] * len(STRATEGIES)


@pytest.mark.parametrize(
    "fields",
    [
        {"min_p": 0.05, "repetition_penalty": 1.1},
        {"typical_p": 0.8, "presence_penalty": 0.5, "frequency_penalty": 0.25},
        {"top_k": 40, "min_tokens": 20, "stop_strings": ["\n"], "banned_sequences": [[70, 71]]},
    ],
    ids="-".join,
)
async def test_every_strategy_gives_the_same_answer(client, prompts, fields):
    options = {"temperature": 0.8, "seed": 3, "max_tokens": NUM_TOKENS, **fields}
    alone, *others = await all_of(
        *(answer(client, prompts[0], **options, **strategy) for strategy in STRATEGIES)
    )
    assert [said(result) for result in others] == [said(alone)] * len(others)
    assert len(alone.token_ids) > fields.get("min_tokens", 0)
    plain = await answer(client, prompts[0], temperature=0.8, seed=3, max_tokens=NUM_TOKENS)
    assert alone.token_ids != plain.token_ids


async def test_an_answer_tells_what_has_stopped_it(client, prompts):
    options = {"temperature": 0, "max_tokens": NUM_TOKENS}
    plain = await answer(client, prompts[0], **options)
    assert plain.stop_reason is None
    by_token = await answer(
        client, prompts[0], **options, stop_token_ids=[plain.token_ids[5]], strategy="dsi"
    )
    assert by_token.stop_reason == plain.token_ids[5]
    stop = plain.text[20:23]
    by_text = await answer(client, prompts[0], **options, stop_strings=["never", stop])
    assert (by_text.stop_reason, by_text.text) == (stop, plain.text[: plain.text.index(stop)])
    whole = await answer(
        client, prompts[0], **options, stop_strings=[stop], include_stop_string=True
    )
    assert (whole.stop_reason, whole.text) == (stop, by_text.text + stop)


async def test_an_answer_goes_on_with_the_penalties_of_its_earlier_tokens(client, prompts):
    options = {"temperature": 0.8, "seed": 3, "frequency_penalty": 1.0, "max_tokens": NUM_TOKENS}
    whole = await answer(client, prompts[0], **options, strategy="speculative")
    # By its tokens alone: what is generated so far counts as generated.
    num_prompt = whole.stats.num_prompt_tokens
    tokens = await client.tokenize(prompts[0])
    assert len(tokens) == num_prompt
    rest = await answer(
        client,
        [*tokens, *whole.token_ids[:10]],
        **{**options, "max_tokens": NUM_TOKENS - 10},
        num_prompt_tokens=num_prompt,
    )
    assert rest.token_ids == whole.token_ids[10:]


async def test_a_resumed_answer_has_the_penalties_of_the_tokens_received(mesh, client, prompts):
    options = {"temperature": 0.8, "seed": 3, "frequency_penalty": 1.0, "max_tokens": NUM_TOKENS}
    whole = await answer(client, prompts[0], **options)
    request = generation_pb2.GenerateRequest(
        text=prompts[0],
        sampling={"temperature": 0.8, "seed": 3, "frequency_penalty": 1.0},
        stopping={"max_tokens": NUM_TOKENS},
        received={"token_ids": whole.token_ids[:10]},
    )
    rest = []
    async with grpc.aio.insecure_channel(mesh.orchestrator.address) as channel:
        async for response in GenerationServiceStub(channel).Generate(request, timeout=60):
            rest += response.event.chunk.token_ids
    assert tuple(rest) == whole.token_ids[10:]
