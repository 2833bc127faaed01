"""The ranks of the target's tokens among a drafter's choices, along the target's answers."""

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
from specmesh.inference.offline import answer, score


class RankedGuesses(Protocol):
    """A drafter or heads that rank tokens by depth."""

    @property
    def digest(self) -> str:
        """Return the digest of its weights, as the mesh knows it."""
        ...

    def ranks(
        self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling
    ) -> AnswerRanks:
        """Return the ranks of ``tokens``, a target's answer to ``prompt``, greedy or coupled."""
        ...


class DrafterGuesses:
    """``RankedGuesses`` of a drafter model. Its choices depend on the preceding tokens only, so one
    forward over an answer yields what it would draft from any position."""

    def __init__(self, drafter: LanguageModel) -> None:
        self._drafter = drafter
        self.digest = drafter.description.weights_digest

    def ranks(
        self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling
    ) -> AnswerRanks:
        """Return the ranks; see ``RankedGuesses``."""
        found = [
            rank(logits, sampling, position, token)
            for position, (logits, token) in enumerate(
                zip(score(self._drafter, prompt, tokens), tokens, strict=True), len(prompt)
            )
        ]
        padded = np.array([*found, *[UNKNOWN] * MAX_WIDTH], dtype=np.int8)
        return np.lib.stride_tricks.sliding_window_view(padded, MAX_WIDTH)[: len(tokens)]


def rank(logits: Logits, sampling: Sampling, position: int, token: int) -> int:
    """Return the rank of ``token`` at ``position`` among the choices from a drafter's ``logits``
    ``[vocab]``."""
    choices = draw_children(logits, sampling, position, NUM_RANKS).children
    return choices.index(token) if token in choices else MISSED


def collect(
    target: LanguageModel,
    guesses: RankedGuesses,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    num_tokens: int,
) -> list[AnswerRanks]:
    """Return the ranks of the target's answers, greedy or coupled; every prompt has its own
    seed."""
    samplings = [replace(sampling, seed=sampling.seed + n) for n in range(len(prompts))]
    answers = answer(target, prompts, samplings, num_tokens)
    return [
        guesses.ranks(prompt, tokens, own)
        for prompt, tokens, own in zip(prompts, answers, samplings, strict=True)
    ]
