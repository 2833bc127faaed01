"""Measurements of the pair on files that neither model has seen.

alpha is the acceptance rate E[sum_x min(p, q)] (Leviathan et al. 2023, Cor. 3.6). Each position's
context is the text itself: for rejection sampling that is the target's own sampled text, for greedy
decoding its own greedy text, so both are generated and scored beside the held-out files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from specmesh.decoding.predict.closed_forms import expected_tokens
from specmesh.training.pair import logits
from specmesh.training.samples import continue_prompts
from specmesh.training.tokenizer import END_OF_TEXT_ID, Tokens

WINDOW_TOKENS = 1024
CONTINUATION_TOKENS = 128
SAMPLED_TEMPERATURE = 0.8
GAMMAS = (3, 4, 5)


@dataclass(frozen=True, slots=True)
class Loss:
    """Held-out cross entropy of one model."""

    nats_per_token: float
    bits_per_byte: float


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Rates at which draft tokens would be accepted, in [0, 1], over ``num_tokens`` positions.

    ``alpha`` is at temperature 1, ``alpha_sampled`` at ``SAMPLED_TEMPERATURE``, and ``greedy`` the
    share of positions where both models' likeliest tokens are equal.
    """

    num_tokens: int
    alpha: float
    alpha_sampled: float
    greedy: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The numbers of the model card.

    Tokens per round are Leviathan's closed form (Eq. 1) at draft lengths ``GAMMAS``, from
    the greedy agreement on greedy text and from ``alpha_sampled`` on sampled text.
    """

    target: Loss
    drafter: Loss
    held_out: Acceptance
    greedy_text: Acceptance
    sampled_text: Acceptance
    greedy_tokens_per_round: tuple[float, ...]
    sampled_tokens_per_round: tuple[float, ...]


def evaluate(
    target: LlamaForCausalLM,
    drafter: LlamaForCausalLM,
    held_out: Tokens,
    num_bytes: int,
    prompts: Sequence[Sequence[int]],
) -> Evaluation:
    """Score the pair on ``held_out`` (``num_bytes`` of text) and on the target's continuations of
    ``prompts``."""
    bytes_per_token = num_bytes / len(held_out)
    text = _Totals()
    for window in _windows(held_out):
        text.add(target, drafter, window, torch.ones(window[:, 1:].shape, dtype=torch.bool))
    greedy = _own_text(target, drafter, prompts, 0.0)
    sampled = _own_text(target, drafter, prompts, SAMPLED_TEMPERATURE)
    return Evaluation(
        target=_loss(text.target_nats / text.num_tokens, bytes_per_token),
        drafter=_loss(text.drafter_nats / text.num_tokens, bytes_per_token),
        held_out=text.acceptance(),
        greedy_text=greedy,
        sampled_text=sampled,
        greedy_tokens_per_round=tuple(expected_tokens(greedy.greedy, g) for g in GAMMAS),
        sampled_tokens_per_round=tuple(expected_tokens(sampled.alpha_sampled, g) for g in GAMMAS),
    )


def acceptance_rates(target_logits: Tensor, drafter_logits: Tensor, temperature: float) -> Tensor:
    """Return sum_x min(p, q) ``[...]`` at ``temperature`` for logits ``[..., vocab]``."""
    p = (target_logits.float() / temperature).softmax(-1)
    q = (drafter_logits.float() / temperature).softmax(-1)
    return torch.minimum(p, q).sum(-1)


def _loss(nats_per_token: float, bytes_per_token: float) -> Loss:
    return Loss(nats_per_token, nats_per_token / math.log(2) / bytes_per_token)


def _windows(tokens: Tokens) -> Iterable[Tensor]:
    """Return the tokens as windows ``[1, up to WINDOW_TOKENS + 1]`` that overlap in one token."""
    for start in range(0, len(tokens) - 1, WINDOW_TOKENS):
        window = tokens[start : start + WINDOW_TOKENS + 1].astype(np.int64)
        yield torch.from_numpy(window)[None]


def _own_text(
    target: LlamaForCausalLM,
    drafter: LlamaForCausalLM,
    prompts: Sequence[Sequence[int]],
    temperature: float,
) -> Acceptance:
    """Measure acceptance on the target's own continuations of ``prompts`` at ``temperature``."""
    row_tokens = max(map(len, prompts)) + CONTINUATION_TOKENS
    generator = torch.Generator().manual_seed(0)
    temperatures = [temperature] * len(prompts)
    totals = _Totals()
    for row, prompt in zip(
        continue_prompts(target, prompts, row_tokens, temperatures, generator), prompts, strict=True
    ):
        answer = row[len(prompt) :][:CONTINUATION_TOKENS]
        ends = (answer == END_OF_TEXT_ID).nonzero()
        if len(ends):  # an answer stops here; the end itself is still the target's choice
            answer = answer[: int(ends[0]) + 1]
        text = torch.cat([torch.tensor(prompt), answer])[None]
        counted = torch.arange(1, text.shape[1])[None] >= len(prompt)
        totals.add(target, drafter, text, counted)
    return totals.acceptance()


@dataclass(slots=True)
class _Totals:
    """Sums over positions."""

    num_tokens: int = 0
    target_nats: float = 0.0
    drafter_nats: float = 0.0
    alpha: float = 0.0
    alpha_sampled: float = 0.0
    greedy: float = 0.0

    @torch.inference_mode()
    def add(
        self, target: LlamaForCausalLM, drafter: LlamaForCausalLM, text: Tensor, counted: Tensor
    ) -> None:
        """Score ``text`` ``[batch, n + 1]`` where ``counted`` ``[batch, n]``, teacher forced."""
        p = logits(target, text[:, :-1])[counted].float()
        q = logits(drafter, text[:, :-1])[counted].float()
        following = text[:, 1:][counted]
        self.num_tokens += len(following)
        self.target_nats += functional.cross_entropy(p, following, reduction="sum").item()
        self.drafter_nats += functional.cross_entropy(q, following, reduction="sum").item()
        self.alpha += acceptance_rates(p, q, 1.0).sum().item()
        self.alpha_sampled += acceptance_rates(p, q, SAMPLED_TEMPERATURE).sum().item()
        self.greedy += (p.argmax(-1) == q.argmax(-1)).sum().item()

    def acceptance(self) -> Acceptance:
        n = self.num_tokens
        return Acceptance(n, self.alpha / n, self.alpha_sampled / n, self.greedy / n)
