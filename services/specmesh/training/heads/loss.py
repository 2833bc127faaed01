"""The loss of heads: how far their guesses along a text are from the target's distribution."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specmesh.inference.models.heads.seen import Seen
from specmesh.training.heads.trainee import Trainee

DEPTH_WEIGHT = 0.8
"""The factor on a guess's weight for each level of depth: a draft often ends earlier."""

SERVED_TEMPERATURE = 0.8
"""The temperature of the distributions whose total variation is minimised."""


def heads_loss(trainee: Trainee, seen: Seen, depth: int, tv_share: float) -> Tensor:
    """Return ``(1 - tv_share) KL + tv_share TV``, averaged over all drafts, deeper guesses counting
    less.

    As for a drafter (see ``training.distill``): KL at temperature 1, total variation, which is one
    minus the acceptance rate, at ``SERVED_TEMPERATURE``. Tokens that are never guessed remain part
    of the target's distribution.
    """
    wanted = _Wanted.by(seen, trainee.guessed)
    total = torch.zeros((), dtype=torch.float32, device=seen.logits.device)
    weights = 0.0
    for guess in trainee.unroll(seen, depth):
        here = slice(guess.first, guess.first + guess.logits.shape[1])
        loss = wanted.loss(guess.logits.float(), here, tv_share).mean()
        weight = DEPTH_WEIGHT ** (guess.first - 1)
        total = total + weight * loss
        weights += weight
    return total / weights


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The target's distributions along texts, over the tokens that are guessed: ``p`` at
    temperature 1 and ``p_served``, both ``[rows, tokens, guessed]``.

    ``mass`` and ``negentropy`` ``[rows, tokens]`` are sums of ``p`` and of ``p log p``.
    """

    p: Tensor
    p_served: Tensor
    mass: Tensor
    negentropy: Tensor

    @staticmethod
    @torch.no_grad()
    def by(seen: Seen, guessed: Tensor | None) -> _Wanted:
        log_p = _log_softmax(seen.logits, 1.0, guessed)
        p = log_p.exp()
        p_served = _log_softmax(seen.logits, SERVED_TEMPERATURE, guessed).exp()
        return _Wanted(p, p_served, p.sum(-1), (p * log_p).sum(-1))

    def loss(self, scores: Tensor, here: slice, tv_share: float) -> Tensor:
        """Return the loss ``[rows, drafts]`` of guesses with logits ``scores`` at the tokens
        ``here``."""
        mass = self.mass[:, here]
        likelihood = (self.p[:, here] * scores).sum(-1) - mass * scores.logsumexp(-1)
        # KL over part of a distribution: without the added mass it could be negative.
        loss = self.negentropy[:, here] - likelihood - mass + 1
        if tv_share:
            q_served = (scores / SERVED_TEMPERATURE).softmax(-1)
            tv = 1 - torch.minimum(self.p_served[:, here], q_served).sum(-1)
            loss = (1 - tv_share) * loss + tv_share * tv
        return loss


def _log_softmax(logits: Tensor, temperature: float, kept: Tensor | None) -> Tensor:
    """Return log-probabilities at ``temperature`` of the tokens ``kept``, normalised over all
    tokens."""
    every = (logits.float() / temperature).log_softmax(-1)
    return every if kept is None else every[..., kept]  # index_select takes ten times as long
