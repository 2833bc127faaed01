"""The network of an EAGLE-3 head (Li et al. 2025), without the way in which it attends."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from specmesh.inference.models.heads.eagle3.config import Eagle3Config
from specmesh.inference.models.heads.eagle3.rotary import Rotary, rotate
from specmesh.inference.models.heads.network import RMSNorm

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Attention of queries ``[rows, heads, tokens, head_dim]`` with the keys and values ``[rows,
kv_heads, tokens, head_dim]`` of the same tokens, and with earlier ones that it has kept. Returns
``[rows, tokens, heads, head_dim]``."""


class Eagle3Network(nn.Module):
    """One decoder layer that reads pairs: a token, and the state of the token before it.

    The state of a token in the text is fused from hidden states of the target there, of three of
    its layers; in a draft, it is the layer's own output for the token. The keys and values of a
    pair depend on its token and on earlier ones only. So they belong to the token's place in the
    text, and texts that begin with the same tokens share them. The first token of a text has no
    state before it, so it makes no pair, and nothing attends to its place.
    """

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.config = config
        hidden, inner, eps = config.hidden_size, config.inner_size, config.norm_eps
        queries = config.num_heads * config.head_dim
        self._widths = [queries, *2 * [config.num_kv_heads * config.head_dim]]
        self.fuse_norms = nn.ModuleList(RMSNorm(size, eps=eps) for size in _norm_sizes(config))
        self.fc = nn.Linear(config.fused_size, hidden, bias=False)
        self.token_norm = RMSNorm(hidden, eps=eps)
        self.state_norm = RMSNorm(hidden, eps=eps)
        self.qkv = nn.Linear(2 * hidden, sum(self._widths), bias=config.attention_bias)
        if config.qk_norm:
            self.query_norm = RMSNorm(config.head_dim, eps=eps)
            self.key_norm = RMSNorm(config.head_dim, eps=eps)
        self.rotary = Rotary(config)
        self.out = nn.Linear(queries, hidden, bias=config.attention_bias)
        self.block_norm = RMSNorm(hidden, eps=eps)
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=config.mlp_bias)
        self.down = nn.Linear(inner, hidden, bias=config.mlp_bias)
        self.last_norm = RMSNorm(hidden, eps=eps)
        self.lm_head = nn.Linear(hidden, config.draft_vocab_size, bias=False)

    def fuse(self, hidden: Tensor) -> Tensor:
        """Return the states ``[..., hidden]`` of tokens whose hidden states in the target are
        ``hidden`` ``[..., layers * target_hidden]``, one layer after the other."""
        if len(self.fuse_norms) == 1:
            hidden = self.fuse_norms[0](hidden)
        elif self.fuse_norms:
            parts = hidden.chunk(len(self.fuse_norms), -1)
            hidden = torch.cat(
                [norm(part) for norm, part in zip(self.fuse_norms, parts, strict=True)], -1
            )
        fused: Tensor = self.fc(hidden)
        return fused

    def forward(
        self, embedded: Tensor, states: Tensor, positions: Tensor, attend: Attend
    ) -> Tensor:
        """Read tokens at ``positions`` ``[rows, tokens]``, embedded as ``[rows, tokens, hidden]``,
        each with the state ``[rows, tokens, hidden]`` of the token before it. Returns their states,
        ``[rows, tokens, hidden]``."""
        normed = self.state_norm(states)
        residual = normed if self.config.norm_before_residual else states
        query, key, value = self._project(torch.cat([self.token_norm(embedded), normed], -1))
        cosines, sines = self.rotary(positions, query.dtype)
        attended = attend(rotate(query, cosines, sines), rotate(key, cosines, sines), value)
        mixed = residual + self.out(attended.flatten(2))
        gate, up = self.gate_up(self.block_norm(mixed)).chunk(2, -1)
        after: Tensor = mixed + self.down(silu(gate) * up)
        return self.last_norm(after) if self.config.norm_output else after

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits ``[..., draft_vocab]`` of the tokens after ``states`` ``[...,
        hidden]``, which ``forward`` returned."""
        features = states if self.config.norm_output else self.last_norm(states)
        logits: Tensor = self.lm_head(features)
        return logits

    def _project(self, read: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each ``[rows, heads, tokens, head_dim]``."""
        query, key, value = (
            part.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)
            for part in self.qkv(read).split(self._widths, -1)
        )
        if self.config.qk_norm:
            query, key = self.query_norm(query), self.key_norm(key)
        return query, key, value


def _norm_sizes(config: Eagle3Config) -> list[int]:
    if config.fuse_norm == "none":
        return []
    if config.fuse_norm == "whole":
        return [config.fused_size]
    return len(config.layer_ids) * [config.target_hidden_size]
