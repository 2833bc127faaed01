"""A model's answers and logits, computed in batches in this process, without a mesh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from specmesh.decoding.logits_row import LogitsRow
from specmesh.decoding.sampling import Sampling, choose
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, ForwardRequest, LanguageModel, Logits

STRETCH_TOKENS = 32
"""Number of tokens to which an answer's tree grows before it becomes prefix: a tree needs a mask, a
prefix doesn't."""


def tokenize(model: LanguageModel, texts: Sequence[str]) -> list[list[int]]:
    """Return token ids of ``texts``, as the mesh computes them."""
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_str(model.description.tokenizer_json)
    return [tokenizer.encode(text).ids for text in texts]


def answer(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    samplings: Sequence[Sampling],
    num_tokens: int,
) -> list[tuple[int, ...]]:
    """Return the model's own answers of ``num_tokens`` each, computed in the largest batches that
    it takes.

    Answers continue past an end of text. ``samplings`` has one for each prompt, greedy or coupled.
    """
    answers: list[tuple[int, ...]] = []
    for first in range(0, len(prompts), model.max_batch):
        batch = slice(first, first + model.max_batch)
        answers += _answer_batch(model, prompts[batch], samplings[batch], num_tokens)
    return answers


def _answer_batch(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    samplings: Sequence[Sampling],
    num_tokens: int,
) -> list[tuple[int, ...]]:
    rows = [tuple(prompt) for prompt in prompts]
    for done in range(0, num_tokens, STRETCH_TOKENS):
        rows = _stretch(model, rows, samplings, min(STRETCH_TOKENS, num_tokens - done))
    return [row[len(prompt) :] for row, prompt in zip(rows, prompts, strict=True)]


def _stretch(
    model: LanguageModel,
    rows: Sequence[tuple[int, ...]],
    samplings: Sequence[Sampling],
    num_tokens: int,
) -> list[tuple[int, ...]]:
    """Return ``rows`` with ``num_tokens`` more tokens each."""
    sequences = [model.open(row, Cancellation(), num_tokens) for row in rows]
    trees = [EMPTY] * len(rows)
    try:
        # Long prompts take several forwards; the other sequences don't wait for them.
        while any(len(tree) < num_tokens for tree in trees):
            under_way = [n for n, tree in enumerate(trees) if len(tree) < num_tokens]
            results = model.forward([ForwardRequest(sequences[n], trees[n]) for n in under_way])
            for n, logits in zip(under_way, results, strict=True):
                if logits is not None:
                    tokens = trees[n].token_ids
                    token = choose(logits[-1], samplings[n], len(rows[n]) + len(tokens))
                    trees[n] = TokenTree.chain((*tokens, token))
    finally:
        for sequence, tree in zip(sequences, trees, strict=True):
            sequence.close(range(1, max(1, len(tree))))  # The last token was not computed.
    return [(*row, *tree.token_ids) for row, tree in zip(rows, trees, strict=True)]


def score(model: LanguageModel, prompt: Sequence[int], answer: Sequence[int]) -> Logits:
    """Return the model's logits ``[len(answer), vocab]`` at every position of an answer.

    Those at a position are conditioned on the prompt and the answer's tokens before it.
    """
    sequence = model.open(prompt, Cancellation(), len(answer))
    try:
        return sequence.score(TokenTree.chain(answer[:-1]))
    finally:
        sequence.close(())


def log_probabilities(logits: Logits, tokens: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return log-probabilities of ``tokens`` ``[n]`` at temperature 1, from ``logits`` ``[n,
    vocab]``."""
    found = np.empty(len(tokens))
    for number, (row, token) in enumerate(zip(logits, tokens, strict=True)):
        weights = LogitsRow(row, temperature=1.0)
        (own,) = weights.log_weights(np.array([token]))
        found[number] = own - math.log(weights.total)
    return found
