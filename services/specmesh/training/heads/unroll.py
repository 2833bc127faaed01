"""The inputs of heads along a text, the tokens to guess, and the loss.

Heads read the text's own tokens at every depth, not their own guesses: a draft continues only below
accepted tokens, and those are the text's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specmesh.inference.models.heads.network import HeadNetwork
from specmesh.inference.models.heads.seen import Seen
from specmesh.inference.models.heads.target_ends import TargetEnds

DEPTH_WEIGHT = 0.8
"""The factor on a guess's weight for each level of depth: a draft often ends earlier."""

SERVED_TEMPERATURE = 0.8
"""The temperature of the distributions whose total variation is minimised."""


@dataclass(frozen=True, slots=True)
class HeadsGuess:
    """The guesses of heads, one token deeper than the last ones.

    ``logits`` ``[rows, starts, guessed]`` are those of the tokens that heads guess; the target's
    are at ``[:, first : first + starts]`` along the text.
    """

    logits: Tensor
    first: int


def unroll(network: HeadNetwork, ends: TargetEnds, seen: Seen, depth: int) -> Iterator[HeadsGuess]:
    """Yield guesses of drafts of ``depth`` tokens from every position of the texts except the last
    ``depth``."""
    starts = seen.token_ids.shape[1] - depth
    states = seen.hidden[:, :starts]
    embedded = ends.embed(seen.token_ids)
    for number in range(depth):
        first = number + 1
        features, states = network(states, embedded[:, first : first + starts], number)
        yield HeadsGuess(ends.guesses(features), first)


def heads_loss(
    network: HeadNetwork, ends: TargetEnds, seen: Seen, depth: int, tv_share: float
) -> Tensor:
    """Return ``(1 - tv_share) KL + tv_share TV``, averaged over all drafts, deeper guesses counting
    less.

    As for a drafter (see ``training.distill``): KL at temperature 1, total variation, which is one
    minus the acceptance rate, at ``SERVED_TEMPERATURE``. Tokens that are never guessed remain part
    of the target's distribution.
    """
    log_p = _log_softmax(seen.logits, 1.0, ends.guessed)
    p_served = _log_softmax(seen.logits, SERVED_TEMPERATURE, ends.guessed).exp()
    total = torch.zeros((), dtype=torch.float32, device=seen.logits.device)
    weights = 0.0
    for guess in unroll(network, ends, seen, depth):
        here = slice(guess.first, guess.first + guess.logits.shape[1])
        scores = guess.logits.float()
        log_p_here = log_p[:, here]
        p_here = log_p_here.exp()
        # KL over part of a distribution: without the added mass it could be negative.
        kl = (p_here * (log_p_here - scores.log_softmax(-1)) - p_here).sum(-1) + 1
        q_served = (scores / SERVED_TEMPERATURE).softmax(-1)
        tv = 1 - torch.minimum(p_served[:, here], q_served).sum(-1)
        weight = DEPTH_WEIGHT ** (guess.first - 1)
        total = total + weight * ((1 - tv_share) * kl + tv_share * tv).mean()
        weights += weight
    return total / weights


def _log_softmax(logits: Tensor, temperature: float, kept: Tensor | None) -> Tensor:
    """Return log-probabilities at ``temperature`` of the tokens ``kept``, normalised over all
    tokens."""
    every = (logits.float() / temperature).log_softmax(-1)
    return every if kept is None else every.index_select(-1, kept)
