"""The target's own texts, made by the inference engine in full batches.

A draft continues what the *target* wrote, so heads learn from that beside the corpus (as in Medusa,
Sec. 2.3.3, and in DistillSpec). Prompts are cut from the training files alone. Every shard is a
function of (seed, shard), so a stopped run continues with the next one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specmesh.decoding.sampling import Sampling, choose
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, ForwardRequest, LanguageModel
from specmesh.training.progress import StepsDone
from specmesh.training.tokenizer import Tokens

STRETCH_TOKENS = 32
"""The tokens to which a row's tree grows before it becomes prefix: a tree needs a mask, a prefix
doesn't."""


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """The amount that the target writes: ``shards`` batches of ``rows`` rows of ``row_tokens``.

    Prompts have ``prompt_tokens`` and are part of their rows. Row ``i`` of a shard is sampled at
    ``temperatures[i % len(temperatures)]``; 0 is greedy.
    """

    shards: int
    rows: int = 64
    row_tokens: int = 256
    prompt_tokens: int = 96
    temperatures: tuple[float, ...] = (0.0, 0.8, 0.8, 1.0)
    seed: int = 0

    @property
    def shard_tokens(self) -> int:
        """Tokens in one shard, prompts included."""
        return self.rows * self.row_tokens

    def within(self, context_tokens: int) -> GenerationPlan:
        """Return the plan with rows that fit a model's context."""
        return replace(self, row_tokens=min(self.row_tokens, context_tokens))


def write_generations(
    model: LanguageModel, training: Tokens, plan: GenerationPlan, folder: Path
) -> Iterator[StepsDone]:
    """Have ``model`` write the shards that ``folder`` lacks; a step is a shard."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(plan.shards):
        path = _path(folder, shard)
        if not path.exists():
            part = path.with_suffix(".part")
            with part.open("wb") as file:
                np.save(file, _shard(model, training, plan, shard))
            os.replace(part, path)
        yield StepsDone(shard + 1)


def missing(plan: GenerationPlan, folder: Path) -> bool:
    """Return whether the target still has shards to write."""
    return not all(_path(folder, shard).exists() for shard in range(plan.shards))


def read_generations(plan: GenerationPlan, folder: Path) -> Tokens:
    """Return all of the plan's texts in one flat array, row by row."""
    rows = [np.load(_path(folder, shard)).reshape(-1) for shard in range(plan.shards)]
    return np.concatenate(rows)


def _path(folder: Path, shard: int) -> Path:
    return folder / f"{shard:05}.npy"


def _shard(model: LanguageModel, training: Tokens, plan: GenerationPlan, shard: int) -> Tokens:
    rng = np.random.default_rng([plan.seed, shard])
    starts = rng.integers(0, len(training) - plan.prompt_tokens, plan.rows)
    rows = [training[start : start + plan.prompt_tokens].tolist() for start in starts]
    samplings = [
        Sampling(
            temperature=plan.temperatures[row % len(plan.temperatures)],
            seed=int(rng.integers(2**63)),
        )
        for row in range(plan.rows)
    ]
    for first in range(0, plan.rows, model.max_batch):
        batch = slice(first, first + model.max_batch)
        rows[batch] = continue_rows(model, rows[batch], samplings[batch], plan.row_tokens)
    dtype: Any = training.dtype
    written: Tokens = np.array(rows, dtype=dtype)
    return written


def continue_rows(
    model: LanguageModel, rows: list[list[int]], samplings: list[Sampling], row_tokens: int
) -> list[list[int]]:
    """Extend each of ``rows``, equally long and at most a batch, to ``row_tokens`` tokens.

    Rows continue after an end of text. ``samplings`` has one for each row, greedy or coupled.
    """
    while (length := len(rows[0])) < row_tokens:
        rows = _stretch(model, rows, samplings, min(STRETCH_TOKENS, row_tokens - length))
    return rows


def _stretch(
    model: LanguageModel, rows: list[list[int]], samplings: list[Sampling], num_tokens: int
) -> list[list[int]]:
    sequences = [model.open(row, Cancellation(), num_tokens) for row in rows]
    trees = [EMPTY] * len(rows)
    try:
        # Long prompts take several forward passes; the other rows don't wait for them.
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
            sequence.close(range(1, max(1, len(tree))))  # the last token was not computed
    return [[*row, *tree.token_ids] for row, tree in zip(rows, trees, strict=True)]
