"""What a model says without a mesh."""

import numpy as np
import pytest
from tests.bench.offline import COUPLED, GREEDY, NUM_TOKENS, PROMPTS, logits_after

from specmesh.decoding.sampling import choose
from specmesh.inference.offline import answer, log_probabilities, score


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
