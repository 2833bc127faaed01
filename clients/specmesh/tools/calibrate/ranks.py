"""Which of a drafter's choices the target's tokens are, along the target's answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from specmesh.decoding.drafting import draw_children
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.plan import MAX_WIDTH
from specmesh.decoding.trees.replay import MISSED, NUM_RANKS, UNKNOWN, AnswerRanks
from specmesh.inference.model import LanguageModel, Logits
from specmesh.tools.offline import answer, score


class RankedGuesses(Protocol):
    """What ranks tokens by depth: a drafter, or heads."""

    @property
    def digest(self) -> str:
        """Of its weights, as the mesh knows it."""
        ...

    def ranks(
        self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling
    ) -> AnswerRanks:
        """The ranks of ``tokens``, a target's answer to ``prompt``, greedy or coupled."""
        ...


class DrafterGuesses:
    """Those of a drafter model, whose choices depend on the tokens before alone: one forward over
    an answer tells what it would draft from anywhere in it."""

    def __init__(self, drafter: LanguageModel) -> None:
        self._drafter = drafter
        self.digest = drafter.description.weights_digest

    def ranks(
        self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling
    ) -> AnswerRanks:
        """See ``RankedGuesses``."""
        found = [
            rank(logits, sampling, position, token)
            for position, (logits, token) in enumerate(
                zip(score(self._drafter, prompt, tokens), tokens, strict=True), len(prompt)
            )
        ]
        padded = np.array([*found, *[UNKNOWN] * MAX_WIDTH], dtype=np.int8)
        return np.lib.stride_tricks.sliding_window_view(padded, MAX_WIDTH)[: len(tokens)]


def rank(logits: Logits, sampling: Sampling, position: int, token: int) -> int:
    """Which choice ``token`` is at ``position`` by a drafter's ``logits`` ``[vocab]``."""
    choices = draw_children(logits, sampling, position, NUM_RANKS).children
    return choices.index(token) if token in choices else MISSED


def collect(
    target: LanguageModel,
    guesses: RankedGuesses,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    num_tokens: int,
) -> list[AnswerRanks]:
    """The ranks of the target's answers, greedy or coupled; every prompt is answered with a seed
    of its own."""
    samplings = [replace(sampling, seed=sampling.seed + n) for n in range(len(prompts))]
    answers = answer(target, prompts, samplings, num_tokens)
    return [
        guesses.ranks(prompt, tokens, own)
        for prompt, tokens, own in zip(prompts, answers, samplings, strict=True)
    ]
