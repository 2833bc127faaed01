"""The drafter's choices along the target's answers, and whether the target agreed with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specmesh.decoding.drafting import TopK, draw_children
from specmesh.decoding.sampling import Sampling
from specmesh.inference.model import LanguageModel
from specmesh.inference.offline import answer, score

NUM_CHOICES = 2
"""Choices per position, as many as the drafter sends for the strategy ``filter``."""

Position = tuple[TopK, bool]
"""The drafter's choices at a position, and whether the target agrees with its draft token."""


def collect(
    target: LanguageModel,
    drafter: LanguageModel,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    num_tokens: int,
) -> list[Position]:
    """Observe every position of the target's answers, greedy or coupled.

    These are the positions that speculative decoding verifies, with any lookahead: each draft is
    verified up to its first rejected token, and the next draft begins after that. Every prompt has
    its own seed.
    """
    positions: list[Position] = []
    samplings = [replace(sampling, seed=sampling.seed + n) for n in range(len(prompts))]
    answers = answer(target, prompts, samplings, num_tokens)
    for prompt, own, tokens in zip(prompts, samplings, answers, strict=True):
        for number, logits in enumerate(score(drafter, prompt, tokens)):
            drawn = draw_children(logits, own, len(prompt) + number, 1, NUM_CHOICES)
            assert drawn.choices is not None
            positions.append((drawn.choices, drawn.children[0] == tokens[number]))
    return positions
