"""The target's own texts, made by the inference engine in full batches.

A draft continues what the *target* wrote, so heads learn from that beside the corpus (as in Medusa,
Sec. 2.3.3, and in DistillSpec). Prompts are cut from the training files alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specmesh.decoding.sampling import Sampling
from specmesh.inference.model import LanguageModel
from specmesh.inference.offline import answer
from specmesh.training.tokenizer import Tokens


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


def write_shard(model: LanguageModel, training: Tokens, plan: GenerationPlan, shard: int) -> Tokens:
    """Return the ``[rows, row_tokens]`` that ``model`` writes as one shard."""
    rng = np.random.default_rng([plan.seed, shard])
    starts = rng.integers(0, len(training) - plan.prompt_tokens, plan.rows)
    prompts = [training[start : start + plan.prompt_tokens].tolist() for start in starts]
    samplings = [
        Sampling(
            temperature=plan.temperatures[row % len(plan.temperatures)],
            seed=int(rng.integers(2**63)),
        )
        for row in range(plan.rows)
    ]
    written = answer(model, prompts, samplings, plan.row_tokens - plan.prompt_tokens)
    dtype: Any = training.dtype
    rows = [(*row, *own) for row, own in zip(prompts, written, strict=True)]
    found: Tokens = np.array(rows, dtype)
    return found
