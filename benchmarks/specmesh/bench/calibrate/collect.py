"""What a drafter thought at the places of the target's answers, and whether the target agreed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specmesh.bench.offline import answer, score
from specmesh.decoding.drafting import TopK, draw_children
from specmesh.decoding.sampling import Sampling
from specmesh.inference.model import LanguageModel

NUM_CHOICES = 2
"""As the strategy ``filter`` has them sent."""

Place = tuple[TopK, bool]
"""What the drafter sent of a place, and whether the target took the token drafted there."""


def collect(
    target: LanguageModel,
    drafter: LanguageModel,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    num_tokens: int,
) -> list[Place]:
    """A place for every token of the target's answers, greedy or coupled.

    They are the places that speculative decoding checks, whatever its lookahead: a verdict
    says of each token up to the first rejected one whether the target's own is the same, and
    the next draft begins behind it. Every prompt is answered with a seed of its own.
    """
    places: list[Place] = []
    samplings = [replace(sampling, seed=sampling.seed + n) for n in range(len(prompts))]
    answers = answer(target, prompts, samplings, num_tokens)
    for prompt, own, tokens in zip(prompts, samplings, answers, strict=True):
        for number, logits in enumerate(score(drafter, prompt, tokens)):
            drawn = draw_children(logits, own, len(prompt) + number, 1, NUM_CHOICES)
            assert drawn.choices is not None
            places.append((drawn.choices, drawn.children[0] == tokens[number]))
    return places
