"""The target's own text, for the drafter to learn from.

While serving, the context of a draft is the *target's* text, not people's, so the drafter should
learn from that too (DistillSpec, Zhou et al. 2023, Sec. 4). Prompts are cut from the training files
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, LlamaForCausalLM

from specmesh.training.shards import Shards
from specmesh.training.tokenizer import END_OF_TEXT_ID, Tokens


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """The amount that the target writes: ``shards`` batches of ``rows`` rows of ``row_tokens``.

    Prompt lengths are drawn from ``prompt_tokens`` (both ends included). Row ``i`` of a shard is
    sampled at ``temperatures[i % len(temperatures)]``; 0 is greedy.
    """

    shards: int
    rows: int = 96
    row_tokens: int = 448
    prompt_tokens: tuple[int, int] = (64, 160)
    temperatures: tuple[float, ...] = (0.0, 0.0, 0.8, 1.0)
    seed: int = 0

    @property
    def shard_tokens(self) -> int:
        """Tokens in one shard, prompts included."""
        return self.rows * self.row_tokens


@torch.inference_mode()
def continue_prompts(
    model: LlamaForCausalLM,
    prompts: Sequence[Sequence[int]],
    row_tokens: int,
    temperatures: Sequence[float],
    generator: torch.Generator,
) -> Tensor:
    """Extend every prompt to ``row_tokens`` tokens, at its own temperature.

    Returns int64 ``[len(prompts), row_tokens]``, prompts included. Prompts of unequal length need
    no padding: the batch starts at the shortest, and a row that is still inside its prompt gets the
    prompt's next token instead of the model's.
    """
    rows = torch.zeros(len(prompts), row_tokens, dtype=torch.int64)
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    for row, prompt in zip(rows, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(prompt)
    temperature = torch.tensor(temperatures)[:, None]
    cache = DynamicCache(config=model.config)
    start = int(lengths.min())
    feed = rows[:, :start]
    for position in range(start, row_tokens):
        logits = model(feed, past_key_values=cache, logits_to_keep=1).logits[:, -1].float()
        # Gumbel-max: argmax(logits + T * G) samples at temperature T, and at 0 is greedy.
        gumbel = -torch.empty_like(logits).exponential_(generator=generator).log()
        chosen = (logits + temperature * gumbel).argmax(-1)
        rows[:, position] = torch.where(position < lengths, rows[:, position], chosen)
        feed = rows[:, position : position + 1]
    return rows


def read_samples(shards: Shards) -> Tokens:
    """Return all of the plan's rows in one flat array, each after an end-of-text token, like
    files."""
    rows: Any = shards.read()
    opened: Tokens = np.pad(rows, ((0, 0), (1, 0)), constant_values=END_OF_TEXT_ID)
    return opened.reshape(-1)


def write_shard(model: LlamaForCausalLM, training: Tokens, plan: SamplePlan, shard: int) -> Tokens:
    """Return the ``[rows, row_tokens]`` that ``model`` writes as one shard."""
    rng = np.random.default_rng([plan.seed, shard])
    low, high = plan.prompt_tokens
    lengths = rng.integers(low, high + 1, plan.rows)
    starts = rng.integers(0, len(training) - high, plan.rows)
    rows = continue_prompts(
        model,
        [training[a : a + n].tolist() for a, n in zip(starts, lengths, strict=True)],
        plan.row_tokens,
        [plan.temperatures[i % len(plan.temperatures)] for i in range(plan.rows)],
        torch.Generator().manual_seed(int(rng.integers(2**63))),
    )
    return rows.numpy().astype(np.uint16)
