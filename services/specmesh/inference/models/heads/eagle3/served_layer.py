"""The network of an EAGLE-3 head in as few operations as torch allows.

With few tokens, starting an operation takes longer than computing it. So norms of equal size are
computed side by side, and queries are rotated together with keys.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

from specmesh.inference.models.cpu.linear import pack_linears
from specmesh.inference.models.cpu.norm import FusedRMSNorm, fuse_norms
from specmesh.inference.models.heads.eagle3.network import Attend, Eagle3Network
from specmesh.inference.models.heads.eagle3.rotary import rotate


class StackedRMSNorm(nn.Module):
    """Norms of equal size, side by side, away from the CPU: each of the last but one dimension has
    its weights."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self._weight = weight.detach()
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``[..., norms, features]``; the shape stays."""
        return rms_norm(x, x.shape[-1:], None, self._eps) * self._weight


class ServedLayer(nn.Module):
    """The layer of an ``Eagle3Network``, with the keys and values of pairs by themselves.

    These are linear in the normed embedding and the normed state, so each half of a pair can be
    computed without the other.
    """

    def __init__(self, network: Eagle3Network) -> None:
        """Take over ``network``, of which nothing else may be used afterwards."""
        super().__init__()
        self.config = config = network.config
        hidden, eps = config.hidden_size, config.norm_eps
        queries = config.num_heads * config.head_dim
        self._num_queries = config.num_heads
        self._num_rotated = config.num_heads + config.num_kv_heads
        self.fuse_norm: FusedRMSNorm | StackedRMSNorm | None = None
        if network.fuse_norms:
            self.fuse_norm = _stacked(network.fuse_norms.parameters(), eps)
        self._num_fused = max(1, len(network.fuse_norms))
        self.fc = network.fc
        self.pair_norm = _stacked([network.token_norm.weight, network.state_norm.weight], eps)
        weight, bias = network.qkv.weight, network.qkv.bias
        self.of_token = _linear(weight[queries:, :hidden], None if bias is None else bias[queries:])
        self.of_state = _linear(weight[queries:, hidden:], None)
        self.qkv = network.qkv
        if config.qk_norm:
            keys = config.num_kv_heads * [network.key_norm.weight]
            self.key_norm = _stacked(keys, eps)
            self.rotated_norm = _stacked(
                [*config.num_heads * [network.query_norm.weight], *keys], eps
            )
        self.rotary = network.rotary
        self.out, self.block_norm = network.out, network.block_norm
        self.gate_up, self.down = network.gate_up, network.down
        self.last_norm, self.lm_head = network.last_norm, network.lm_head
        dtype = self.fc.weight.dtype
        pack_linears(self)
        fuse_norms(self, dtype)

    def fuse(self, hidden: Tensor) -> Tensor:
        """See ``Eagle3Network``."""
        if self.fuse_norm is not None:
            hidden = self.fuse_norm(hidden.view(1, len(hidden[0]), self._num_fused, -1)).flatten(2)
        fused: Tensor = self.fc(hidden)
        return fused

    def halves(self, embedded: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the halves of keys and values, each ``[1, tokens, 2 * kv_heads * head_dim]``: of
        the pairs of tokens ``embedded`` ``[1, tokens, hidden]``, and of the pairs of the tokens
        that follow ``states`` ``[1, tokens, hidden]``."""
        normed = self._normed(embedded, states)
        return self.of_token(normed[:, :, 0]), self.of_state(normed[:, :, 1])

    def pairs(self, halves: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values ``[1, kv_heads, tokens, head_dim]`` that ``forward`` gives to
        ``attend``, for sums of two ``halves``."""
        sides = halves.view(1, halves.shape[1], 2, -1, self.config.head_dim)
        keys, values = sides.unbind(2)
        if self.config.qk_norm:
            keys = self.key_norm(keys)
        return self._rotated(keys, positions), values.transpose(1, 2)

    def forward(
        self, embedded: Tensor, states: Tensor, positions: Tensor, attend: Attend
    ) -> Tensor:
        """See ``Eagle3Network``; there is one row."""
        normed = self._normed(embedded, states)
        residual = normed[:, :, 1] if self.config.norm_before_residual else states
        projected = self.qkv(normed.flatten(2))
        by_head = projected.view(1, projected.shape[1], -1, self.config.head_dim)
        rotated, values = by_head.tensor_split((self._num_rotated,), 2)
        if self.config.qk_norm:
            rotated = self.rotated_norm(rotated)
        rotated = self._rotated(rotated, positions)
        queries, keys = rotated.tensor_split((self._num_queries,), 1)
        attended = attend(queries, keys, values.transpose(1, 2))
        mixed = residual + self.out(attended.flatten(2))
        gate, up = self.gate_up(self.block_norm(mixed)).chunk(2, -1)
        after: Tensor = mixed + self.down(silu(gate) * up)
        return self.last_norm(after) if self.config.norm_output else after

    def logits(self, states: Tensor) -> Tensor:
        """See ``Eagle3Network``."""
        features = states if self.config.norm_output else self.last_norm(states)
        logits: Tensor = self.lm_head(features)
        return logits

    def _normed(self, embedded: Tensor, states: Tensor) -> Tensor:
        """Return both, normed, as ``[1, tokens, 2, hidden]``."""
        normed: Tensor = self.pair_norm(torch.stack((embedded, states), 2))
        return normed

    def _rotated(self, by_head: Tensor, positions: Tensor) -> Tensor:
        """Rotate ``[1, tokens, heads, head_dim]``; returns ``[1, heads, tokens, head_dim]``."""
        return rotate(by_head.transpose(1, 2), *self.rotary(positions, by_head.dtype))


def _stacked(weights: Iterable[Tensor], eps: float) -> FusedRMSNorm | StackedRMSNorm:
    weight = torch.stack(list(weights))
    return (FusedRMSNorm if weight.device.type == "cpu" else StackedRMSNorm)(weight, eps)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.contiguous(), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer
