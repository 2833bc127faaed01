"""The rate at which the target agrees with heads, on text that neither was trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specmesh.training.heads.loss import SERVED_TEMPERATURE
from specmesh.training.heads.trainee import Trainee
from specmesh.training.tokenizer import Tokens

MAX_WINDOWS = 32


@dataclass(frozen=True, slots=True)
class DepthAcceptance:
    """The acceptance of guesses at one depth: 1 for the first guess after the target's own token.

    ``greedy`` is the share of guesses that are the target's likeliest token; ``sampled`` is the
    mean of sum min(p, q) at ``SERVED_TEMPERATURE``. The tokens before a guess are the text's, not a
    draft's.
    """

    depth: int
    greedy: float
    sampled: float


@torch.no_grad()
def measure(
    trainee: Trainee, held_out: Tokens, max_depth: int, window_tokens: int
) -> list[DepthAcceptance]:
    """Measure guesses along windows of ``held_out`` text, spread over all of it."""
    greedy, sampled = np.zeros(max_depth), np.zeros(max_depth)
    windows = _windows(held_out, window_tokens)
    for window in windows:
        seen = trainee.look(window)
        p = (seen.logits.float() / SERVED_TEMPERATURE).softmax(-1)
        with torch.autocast(window.device.type, dtype=torch.bfloat16):
            guesses = list(trainee.unroll(seen, max_depth))
        for guess in guesses:
            here = slice(guess.first, guess.first + guess.logits.shape[1])
            q = torch.zeros_like(p[:, here])
            kept = slice(None) if trainee.guessed is None else trainee.guessed
            q[..., kept] = (guess.logits.float() / SERVED_TEMPERATURE).softmax(-1)
            agrees = p[:, here].argmax(-1) == q.argmax(-1)
            greedy[guess.first - 1] += agrees.float().mean().item() / len(windows)
            shared = torch.minimum(p[:, here], q).sum(-1)
            sampled[guess.first - 1] += shared.mean().item() / len(windows)
    return [
        DepthAcceptance(depth, float(greedy[depth - 1]), float(sampled[depth - 1]))
        for depth in range(1, max_depth + 1)
    ]


def _windows(tokens: Tokens, length: int) -> list[Tensor]:
    """Return windows ``[1, length]``, at most ``MAX_WINDOWS``."""
    count = max(1, min(MAX_WINDOWS, len(tokens) // length))
    starts = np.linspace(0, max(0, len(tokens) - length), count).astype(int)
    return [
        torch.from_numpy(tokens[start : start + length].astype(np.int64))[None] for start in starts
    ]
