"""The drafter's loss: agree with the target, not only with the text.

A drafted token is accepted with probability sum_x min(p, q) = 1 - TV(p, q) (Leviathan et al. 2023,
Cor. 3.6). Forward KL has useful gradients from the first step but spends the small model's capacity
on covering the target's tail; total variation is acceptance itself, and works once the two are
close. So training has stages (DistillSpec, Zhou et al. 2023).
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from specmesh.training.pair import logits


def divergences(target_logits: Tensor, drafter_logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return forward KL(target, drafter) in nats and total variation, each ``[batch,
    sequence]``."""
    log_p = target_logits.float().log_softmax(-1)
    log_q = drafter_logits.float().log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    return (p * (log_p - log_q)).sum(-1), 0.5 * (p - q).abs().sum(-1)


def distillation_loss(
    drafter: LlamaForCausalLM, target: LlamaForCausalLM, tv_share: float, batch: Tensor
) -> Tensor:
    """Return ``(1 - tv_share) KL + tv_share TV``, averaged over a batch ``[batch, sequence +
    1]``."""
    tokens = batch[:, :-1]
    with torch.no_grad():
        target_logits = logits(target, tokens)
    kl, tv = divergences(target_logits, logits(drafter, tokens))
    return ((1 - tv_share) * kl + tv_share * tv).mean()
