"""The trained networks of heads: they map a state and a token to the state after it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

NORM_EPS = 1e-6


class HeadNetwork(nn.Module):
    """The weights of heads, between the target's own first and last layers."""

    depth_matters: bool
    """True if tokens of different depths are read by different weights."""

    def forward(self, states: Tensor, embedded: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Read one token in each of ``states`` ``[..., hidden]``. ``embedded`` ``[..., embedding]``
        are the target's embeddings of the tokens, which have ``depth`` tokens of their draft before
        them.

        Returns the input of the target's output layer, and the new states, both ``[..., hidden]``.
        The first states are the target's own hidden states.
        """
        raise NotImplementedError

    def start(self, hidden: Tensor) -> None:
        """Set the scales of an untrained network from the target's hidden states ``[n,
        hidden]``."""


class MedusaHeads(HeadNetwork):
    """Heads for each depth, which see the target's hidden state and no drafted token.

    Each is a residual block that begins as the identity (Cai et al. 2024, Sec. 2.1): untrained, all
    of them guess the token that the target has just chosen.
    """

    depth_matters = True

    def __init__(self, hidden: int, max_depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(max_depth))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, states: Tensor, _embedded: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Implement ``HeadNetwork``."""
        return states + silu(self.blocks[depth](states)), states


class RMSNorm(nn.RMSNorm):
    """A norm that computes in the data type of its weights for any input: they are trained in
    float32."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``[..., features]``; the shape stays."""
        return rms_norm(x.to(self.weight.dtype), self.normalized_shape, self.weight, self.eps)


class RecurrentHead(HeadNetwork):
    """One head for all depths, which reads the drafted tokens one by one.

    A state and a token become the next state (as in ReDrafter and Hydra; Cheng et al. 2024, Ankner
    et al. 2024), which is meant to be the hidden state that the target would have there (EAGLE, Li
    et al. 2024). There is no attention to the text: a state has one size, however long the text.
    """

    depth_matters = False

    def __init__(self, hidden: int, embedding: int, inner: int) -> None:
        super().__init__()
        self.state_norm = RMSNorm(hidden, eps=NORM_EPS)
        self.token_norm = RMSNorm(embedding, eps=NORM_EPS)
        self.mix = nn.Linear(hidden + embedding, hidden, bias=False)
        self.block_norm = RMSNorm(hidden, eps=NORM_EPS)
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.out_norm = RMSNorm(hidden, eps=NORM_EPS)

    def start(self, hidden: Tensor) -> None:
        """Begin as the identity plus the token's contribution: see ``HeadNetwork``."""
        scales = hidden.float().square().mean(0).sqrt()
        with torch.no_grad():
            self.state_norm.weight.copy_(scales.square().mean().sqrt() / scales)
            self.out_norm.weight.copy_(scales)
            self.mix.weight[:, : len(scales)].copy_(torch.eye(len(scales)))
            self.down.weight.zero_()

    def forward(self, states: Tensor, embedded: Tensor, _depth: int) -> tuple[Tensor, Tensor]:
        """Implement ``HeadNetwork``."""
        read = torch.cat([self.state_norm(states), self.token_norm(embedded)], -1)
        mixed = self.mix(read)
        gate, up = self.gate_up(self.block_norm(mixed)).chunk(2, -1)
        after = self.out_norm(mixed + self.down(silu(gate) * up))
        return after, after
