"""Logit processing, held against transformers' own processors and against its definition."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)
from transformers.generation import MinNewTokensLengthLogitsProcessor

from specmesh.decoding.acceptance import verify
from specmesh.decoding.drafting import draw_children
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.processing.penalties import Penalties
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import AcceptanceMode, Sampling, choose, warp
from specmesh.decoding.trees.tree import EMPTY, TokenTree

VOCAB = 40
PROMPT = (3, 7, 7, 11)
ANSWER = (5, 7, 9, 5, 5)
PREFIX = PROMPT + ANSWER


def row(seed=0, size=VOCAB):
    return np.random.default_rng(seed).normal(scale=3, size=size).astype(np.float32)


def processed(logits, prefix=PREFIX, path=(), **fields):
    sampling = Sampling(**{"num_prompt_tokens": len(PROMPT), **fields})
    return LogitProcessor(sampling, prefix).row(logits, path)


def by_transformers(processors, logits, prefix=PREFIX):
    chain = LogitsProcessorList(processors)
    return chain(torch.tensor([prefix]), torch.tensor(logits)[None].clone())[0].numpy()


SAME_AS_TRANSFORMERS = {
    "repetition penalty": (
        {"repetition_penalty": 1.3},
        [RepetitionPenaltyLogitsProcessor(1.3)],
    ),
    "bias": (
        {"logit_bias": ((2, 4.5), (7, -3.25))},
        [SequenceBiasLogitsProcessor([[[2], 4.5], [[7], -3.25]])],
    ),
    "bias and repetition penalty": (
        {"logit_bias": ((2, 4.5), (7, -3.25)), "repetition_penalty": 0.8},
        [
            SequenceBiasLogitsProcessor([[[2], 4.5], [[7], -3.25]]),
            RepetitionPenaltyLogitsProcessor(0.8),
        ],
    ),
    "banned tokens": (
        {"banned_token_ids": (1, 39)},
        [SuppressTokensLogitsProcessor([1, 39])],
    ),
    "allowed tokens": (
        {"allowed_token_ids": (4, 5)},
        [SuppressTokensLogitsProcessor([each for each in range(VOCAB) if each not in (4, 5)])],
    ),
    "banned sequences": (
        {"banned_sequences": ((5, 5, 8), (5, 4), (9,), (9, 6), (7, 5, 5, 1))},
        [NoBadWordsLogitsProcessor([[5, 5, 8], [5, 4], [9], [9, 6], [7, 5, 5, 1]])],
    ),
    "minimum length": (
        {"min_tokens": 6, "end_token_ids": (0, 2)},
        [MinNewTokensLengthLogitsProcessor(len(PROMPT), 6, [0, 2])],
    ),
    "minimum length, reached": (
        {"min_tokens": 5, "end_token_ids": (0, 2)},
        [MinNewTokensLengthLogitsProcessor(len(PROMPT), 5, [0, 2])],
    ),
}


@pytest.mark.parametrize("name", SAME_AS_TRANSFORMERS)
@pytest.mark.parametrize("seed", range(5))
def test_each_step_agrees_with_transformers(name, seed):
    fields, processors = SAME_AS_TRANSFORMERS[name]
    logits = row(seed)
    expected = by_transformers(processors, logits)
    np.testing.assert_allclose(processed(logits, **fields), expected, rtol=1e-5, atol=1e-5)


WARPERS = {
    "min-p": ({"min_p": 0.1}, [MinPLogitsWarper(0.1)]),
    "typical-p": ({"typical_p": 0.7}, [TypicalLogitsWarper(0.7)]),
    "all": (
        {"temperature": 1.7, "top_k": 30, "top_p": 0.95, "min_p": 0.02, "typical_p": 0.9},
        [
            TemperatureLogitsWarper(1.7),
            TopKLogitsWarper(30),
            TopPLogitsWarper(0.95),
            MinPLogitsWarper(0.02),
            TypicalLogitsWarper(0.9),
        ],
    ),
}


@pytest.mark.parametrize("name", WARPERS)
@pytest.mark.parametrize("size", [VOCAB, 20_000])
@pytest.mark.parametrize("seed", range(4))
def test_warping_agrees_with_transformers(name, size, seed):
    fields, warpers = WARPERS[name]
    logits = row(seed, size)
    found = warp(logits, Sampling(**fields))
    expected = torch.softmax(torch.tensor(by_transformers(warpers, logits)).double(), -1).numpy()
    dense = np.zeros(size)
    dense[found.token_ids] = found.probabilities
    np.testing.assert_allclose(dense, expected, atol=1e-5)
    assert set(found.token_ids) == set(np.flatnonzero(expected))


def test_presence_and_frequency_count_tokens_of_the_answer_alone():
    logits = row()
    found = processed(logits, presence_penalty=0.5, frequency_penalty=0.25)
    expected = logits.copy()
    for token, count in {5: 3, 7: 1, 9: 1}.items():
        expected[token] -= 0.5 + 0.25 * count
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_tokens_of_a_path_count_as_generated():
    logits = row()
    fields = {
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "banned_sequences": ((9, 20), (20, 21, 22)),
        "min_tokens": 8,
        "end_token_ids": (0,),
    }
    path = (5, 30, 30, 20, 21)
    for length in range(len(path) + 1):
        whole = processed(logits, prefix=PREFIX + path[:length], **fields)
        assert np.array_equal(processed(logits, path=path[:length], **fields), whole)


def test_a_repetition_penalty_behind_a_long_prompt_takes_less_than_to_sort_it():
    """Each call finds its tokens anew, on the thread that all calls share."""
    prompt = np.random.default_rng(2).integers(0, 50_000, 100_000)
    sampling = Sampling(repetition_penalty=1.2, num_prompt_tokens=prompt.size)
    logits = row(size=50_000)
    ours = min(timed(lambda: Penalties(sampling, prompt).apply(logits, ())) for _ in range(5))
    assert ours < min(timed(lambda: np.unique(prompt)) for _ in range(5))


def timed(work):
    began = time.thread_time()
    work()
    return time.thread_time() - began


def test_a_growing_prefix_is_taken_as_it_is_cached():
    fields = {"repetition_penalty": 1.2, "frequency_penalty": 0.5}
    assert np.array_equal(
        processed(row(), prefix=PrefixChain(PREFIX), **fields), processed(row(), **fields)
    )


def test_ids_beyond_a_drafters_vocabulary_are_ignored():
    fields = {
        "logit_bias": ((45, 3.0),),
        "banned_token_ids": (44,),
        "allowed_token_ids": (*range(30), 43),
        "banned_sequences": ((5, 42),),
        "repetition_penalty": 2.0,
        "end_token_ids": (41,),
        "min_tokens": 9,
    }
    prefix = (*PREFIX, 46, 5)
    wide = row(size=50)
    narrow = processed(wide[:VOCAB], prefix=prefix, **fields)
    assert np.array_equal(narrow, processed(wide, prefix=prefix, **fields)[:VOCAB])


def test_banned_sequences_are_not_heeded_where_nothing_would_be_left():
    fields = {"allowed_token_ids": (8, 9), "banned_sequences": ((5, 8), (5, 9))}
    found = processed(row(), **fields)
    assert set(np.flatnonzero(np.isfinite(found))) == {8, 9}
    fields["banned_sequences"] = ((5, 8),)
    assert set(np.flatnonzero(np.isfinite(processed(row(), **fields)))) == {9}


@pytest.mark.parametrize("size", [50, 20_000])
@pytest.mark.parametrize("temperature", [1e-6, 1e-37, 1e-40])
def test_a_tiny_temperature_leaves_the_likeliest_as_the_typical_one(size, temperature):
    for dtype in (np.float32, np.float64):
        logits = row(size=size).astype(dtype)
        found = warp(logits, Sampling(temperature=temperature, seed=1, typical_p=0.5))
        assert found.token_ids.tolist() == [logits.argmax()]


def test_a_request_that_changes_nothing_costs_nothing():
    logits = row()
    assert processed(logits) is logits
    assert processed(logits, min_p=0.5, typical_p=0.5) is logits
    assert not Sampling(num_prompt_tokens=4).needs_processing
    assert Sampling(min_p=0.5).needs_processing


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"logit_bias": ((3, 101.0),)}, "logit_bias[3]"),
        ({"logit_bias": ((3, float("nan")),)}, "logit_bias[3]"),
        ({"logit_bias": tuple((token, 1.0) for token in range(1025))}, "logit_bias"),
        ({"allowed_token_ids": tuple(range(1025))}, "allowed_token_ids"),
        ({"banned_token_ids": tuple(range(1025))}, "banned_token_ids"),
        ({"banned_sequences": ((1,),) * 257}, "banned_sequences"),
        ({"banned_sequences": ((1,), ())}, "banned_sequences[1].token_ids"),
        ({"banned_sequences": ((1,) * 33,)}, "banned_sequences[0].token_ids"),
    ],
)
def test_wrong_values_are_named(fields, named):
    with pytest.raises(InvalidField) as error:
        Sampling(**fields)
    assert error.value.field == named


# Under speculation.

FIELDS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 1.5]),
        "seed": st.integers(0, 2**53 - 1),
    },
    optional={
        "top_k": st.integers(1, 8),
        "top_p": st.floats(0.5, 1),
        "min_p": st.floats(0, 0.3),
        "typical_p": st.floats(0.4, 1),
        "repetition_penalty": st.floats(0.7, 1.8),
        "presence_penalty": st.floats(-1, 2),
        "frequency_penalty": st.floats(-1, 2),
        "logit_bias": st.dictionaries(st.integers(0, 9), st.floats(-8, 8), max_size=4).map(
            lambda bias: tuple(sorted(bias.items()))
        ),
        "allowed_token_ids": st.sets(st.integers(0, 9), min_size=3).map(tuple),
        "banned_token_ids": st.sets(st.integers(0, 9), max_size=2).map(tuple),
        "banned_sequences": st.sets(
            st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple), max_size=6
        ).map(tuple),
        "min_tokens": st.integers(0, 8),
    },
)


def model(seed, tokens):
    rng = np.random.default_rng([seed, *tokens])
    return (2 * rng.normal(size=10)).astype(np.float32)


def draft(seed, prefix, sampling, depth, width):
    """A tree by a drafter that processes its logits as the target does."""
    processor = LogitProcessor(sampling, prefix)
    tree, level = EMPTY, [0]
    for at in range(depth):
        below = []
        for node in level:
            path = tree.tokens_on(tree.path(node))
            logits = processor.row(model(seed, (*prefix, *path)), path)
            drawn = draw_children(logits, sampling, len(prefix) + at, width)
            below += range(len(tree) + 1, len(tree) + 1 + len(drawn.children))
            tree = tree.extend(drawn.children, [node] * len(drawn.children))
        level = below
    return tree


@given(fields=FIELDS, seeds=st.tuples(st.integers(0, 99), st.integers(0, 99)), data=st.data())
@settings(max_examples=60, deadline=None)
def test_speculation_gives_the_text_of_the_target_alone(fields, seeds, data):
    sampling = Sampling(**fields, num_prompt_tokens=2, end_token_ids=(1,))
    target, drafter = seeds
    prompt = (0, 1)

    alone = prompt
    while len(alone) < 14:
        logits = LogitProcessor(sampling, alone).row(model(target, alone))
        alone = (*alone, choose(logits, sampling, len(alone)))

    tokens = prompt
    while len(tokens) < 14:
        depth, width = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 2))
        tree = draft(drafter, tokens, sampling, depth, width)
        nodes = range(len(tree) + 1)
        paths = [tree.tokens_on(tree.path(node)) for node in nodes]
        logits = np.stack([model(target, (*tokens, *path)) for path in paths])
        rows = LogitProcessor(sampling, tokens).rows(logits, tree)
        found = verify(tree, rows, sampling, len(tokens))
        tokens = (*tokens, *tree.tokens_on(found.accepted_nodes), found.next_token)
    assert tokens[:14] == alone


def test_a_drafter_that_equals_the_target_is_always_accepted():
    sampling = Sampling(
        *(0.8,), seed=5, repetition_penalty=1.4, frequency_penalty=0.5, num_prompt_tokens=2
    )
    tokens = (0, 1)
    tree = draft(3, tokens, sampling, 5, 1)
    paths = [tree.tokens_on(tree.path(node)) for node in range(len(tree) + 1)]
    logits = np.stack([model(3, (*tokens, *path)) for path in paths])
    rows = LogitProcessor(sampling, tokens).rows(logits, tree)
    assert len(verify(tree, rows, sampling, 2).accepted_nodes) == 5


def test_rejection_keeps_the_law_of_processed_logits():
    fields = {"banned_token_ids": (4,), "repetition_penalty": 1.5, "logit_bias": ((2, 1.0),)}
    prefix, counts = (0, 1, 3), np.zeros(10)
    base = Sampling(mode=AcceptanceMode.REJECTION, num_prompt_tokens=2, **fields)
    expected = warp(LogitProcessor(base, prefix).row(model(8, prefix)), base)
    num_trials = 2000
    for seed in range(num_trials):
        sampling = replace(base, seed=seed)
        processor = LogitProcessor(sampling, prefix)
        own = processor.row(model(9, prefix))
        drawn = draw_children(own, replace(sampling, seed=seed + 10**6), 3, 1)
        tree = TokenTree.chain(drawn.children)
        logits = np.stack([model(8, prefix), model(8, (*prefix, *drawn.children))])
        rows = processor.rows(logits, tree)
        found = verify(tree, rows, sampling, 3, {0: drawn.distribution})
        first = drawn.children[0] if found.accepted_nodes else found.next_token
        counts[first] += 1
    assert counts[4] == 0
    share = counts[expected.token_ids] / num_trials
    bound = 5 * np.sqrt(expected.probabilities * (1 - expected.probabilities) / num_trials)
    assert (np.abs(share - expected.probabilities) <= bound + 1e-3).all()
