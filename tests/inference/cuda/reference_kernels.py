"""The kernels in plain operations on a CPU: importing this lets models that are laid
out for a GPU run without one."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from specmesh.decoding.noise import BLOCK_STRIDE, TILE_IDS, BlockNoise
from specmesh.inference.models.cuda.choice import own_tokens
from specmesh.inference.models.cuda.linear import matvec
from specmesh.inference.models.cuda.paged_attention import paged_attention
from specmesh.inference.models.cuda.wanted import COUPLED


@paged_attention.register_kernel("cpu")
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    held: Tensor,
    spans: Tensor,
    bits: Tensor,
    tiles: Tensor,
    sequences: Tensor,
    tables: Tensor,
    counters: Tensor,
    scale: float,
) -> Tensor:
    shared = query.shape[1] // held.shape[2]
    out = torch.zeros_like(query).transpose(1, 2).contiguous()
    for sequence, first, count in tiles.tolist():
        start, length, num_new, first_new = sequences[sequence].tolist()
        indexes = torch.arange(length)
        slots = tables[start + indexes // 16] * 16 + indexes % 16
        if count:
            new = slice(first_new, first_new + num_new)
            held[0, slots[-num_new:]] = key[0, :, new].transpose(0, 1)
            held[1, slots[-num_new:]] = value[0, :, new].transpose(0, 1)
        for token in range(first, first + count):
            after = indexes - spans[token]
            word = bits[token, (after // 32).clamp(0, bits.shape[1] - 1)]
            has_bit = (after >= 0) & (after < 32 * bits.shape[1])
            seen = slots[(after < 0) | has_bit & ((word >> (after % 32)) & 1).bool()]
            keys, values = held[:, seen].repeat_interleave(shared, dim=2)
            weights = (torch.einsum("hd,lhd->hl", query[0, :, token], keys) * scale).softmax(-1)
            out[0, token] = torch.einsum("hl,lhd->hd", weights, values)
    return out


@matvec.register_kernel("cpu")
def multiply(weight: Tensor, vector: Tensor) -> Tensor:
    return weight @ vector


@own_tokens.register_kernel("cpu")
def find(logits: Tensor, kinds: Tensor, keys: Tensor, temperatures: Tensor) -> Tensor:
    found = []
    for row, kind, key, temperature in zip(
        logits.double(), kinds.tolist(), keys.tolist(), temperatures.tolist(), strict=True
    ):
        if not kind or not row.max().isfinite():
            found.append(-1)
            continue
        scores = row.numpy()
        if kind == COUPLED:
            scores = scores / temperature + _noise(key & (1 << 64) - 1, len(scores))
        found.append(int(scores.argmax()))
    return torch.tensor(found, dtype=torch.int32)


def _noise(key: int, count: int) -> np.ndarray:
    return BlockNoise(key, -(-count // TILE_IDS) * BLOCK_STRIDE).at(np.arange(count))
