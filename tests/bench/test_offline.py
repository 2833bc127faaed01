"""What a model says without a mesh."""

import numpy as np
import pytest

from specmesh.bench.offline import answer, log_probabilities, score
from specmesh.decoding.sampling import AcceptanceMode, Sampling, choose
from specmesh.decoding.tree import EMPTY
from specmesh.inference.model import Cancellation

GREEDY = Sampling(mode=AcceptanceMode.GREEDY)
COUPLED = Sampling(0.8, seed=11)
PROMPTS = ([5, 6, 7], list(range(8, 40)), [30])
NUM_TOKENS = 12


@pytest.fixture
def target(load):
    return load("llama")


def logits_after(model, tokens):
    sequence = model.open(tokens, Cancellation(), 1)
    try:
        return sequence.score(EMPTY)[0]
    finally:
        sequence.close(())


@pytest.mark.parametrize("sampling", [GREEDY, COUPLED])
def test_answers_in_a_batch_are_those_of_one_token_after_the_other(target, sampling):
    answers = answer(target, PROMPTS, [sampling] * len(PROMPTS), NUM_TOKENS)
    for prompt, tokens in zip(PROMPTS, answers, strict=True):
        text = list(prompt)
        for _ in range(NUM_TOKENS):
            text.append(choose(logits_after(target, text), sampling, len(text)))
        assert tokens == tuple(text[len(prompt) :])


def test_scores_of_an_answer_are_those_after_each_of_its_beginnings(target):
    prompt, tokens = PROMPTS[0], (9, 9, 41, 3)
    logits = score(target, prompt, tokens)
    for place, row in enumerate(logits):
        alone = logits_after(target, [*prompt, *tokens[:place]])
        np.testing.assert_allclose(row, alone, atol=1e-4)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = np.log([row[token] for row, token in zip(probabilities, tokens, strict=True)])
    np.testing.assert_allclose(log_probabilities(logits, tokens), expected, atol=1e-5)
