"""What heads learn: networks from what is known of a text and a token to what is known after it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

NORM_EPS = 1e-6


class HeadNetwork(Protocol):
    """The weights of some heads; the target's own first and last layers are around them."""

    def __call__(self, states: Tensor, embedded: Tensor, depths: Tensor) -> tuple[Tensor, Tensor]:
        """Read a token in each of ``states`` ``[..., hidden]``, embedded by the target
        (``[..., embedding]``) and ``depths`` ``[...]`` deep, or all as deep (``[]``).

        Returns the input of the target's output layer there, and the states, both
        ``[..., hidden]``. The first states are the target's own hidden ones.
        """
        ...


class MedusaHeads(nn.Module):
    """One head for each depth, which sees the target's hidden state and no drafted token.

    Each is a residual block that begins as the identity (Cai et al. 2024, Sec. 2.1): untrained, all
    of them guess what the target has just chosen.
    """

    def __init__(self, hidden: int, max_depth: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(max_depth, hidden, hidden))
        self.bias = nn.Parameter(torch.zeros(max_depth, hidden))

    def forward(self, states: Tensor, _embedded: Tensor, depths: Tensor) -> tuple[Tensor, Tensor]:
        """See ``HeadNetwork``."""
        turned = (states.unsqueeze(-2) @ self.weight[depths]).squeeze(-2)
        return states + silu(turned + self.bias[depths]), states


class RecurrentHead(nn.Module):
    """One head for all depths, which reads the drafted tokens one by one.

    A state and a token become the next state (as in ReDrafter and Hydra; Cheng et al. 2024, Ankner
    et al. 2024), which is meant to be the hidden state that the target would have there (EAGLE, Li
    et al. 2024). There is no attention to the text: a state has one size, however long the text.
    """

    def __init__(self, hidden: int, embedding: int, inner: int) -> None:
        super().__init__()
        self.state_norm = nn.RMSNorm(hidden, eps=NORM_EPS)
        self.token_norm = nn.RMSNorm(embedding, eps=NORM_EPS)
        self.mix = nn.Linear(hidden + embedding, hidden, bias=False)
        self.block_norm = nn.RMSNorm(hidden, eps=NORM_EPS)
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.out_norm = nn.RMSNorm(hidden, eps=NORM_EPS)

    def forward(self, states: Tensor, embedded: Tensor, _depths: Tensor) -> tuple[Tensor, Tensor]:
        """See ``HeadNetwork``."""
        read = torch.cat([self.state_norm(states), self.token_norm(embedded)], -1)
        mixed = self.mix(read)
        gate, up = self.gate_up(self.block_norm(mixed)).chunk(2, -1)
        after = self.out_norm(mixed + self.down(silu(gate) * up))
        return after, after
