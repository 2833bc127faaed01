"""Each row's own token, found on the device: logits need not leave it."""

from __future__ import annotations

import torch
from torch import Tensor

_PART = 2048
_BLOCK = 512
_SLACK = 1e-9
"""The least difference of two scores, as a share, that no rounding in float64 can turn round."""


@torch.library.custom_op("specmesh::own_tokens", mutates_args=(), device_types="cuda")
def own_tokens(logits: Tensor, kinds: Tensor, keys: Tensor, temperatures: Tensor) -> Tensor:
    """Return the own token of each row of ``logits`` ``[rows, vocab]``; -1 where the host must find
    it, or where none is wanted.

    ``kinds`` ``[rows]`` are those of ``wanted.py``. In coupled mode, ``keys`` ``[rows]`` are
    the keys of the noise's streams, as int64, and ``temperatures`` ``[rows]`` are float64.
    """
    from specmesh.inference.models.cuda import choice_kernels

    num_rows, vocab_size = logits.shape
    num_parts = -(-vocab_size // _PART)
    scores = logits.new_empty((num_rows, num_parts, 2), dtype=torch.float64)
    tokens = logits.new_empty((num_rows, num_parts), dtype=torch.int32)
    choice_kernels.best_of_part[(num_rows, num_parts)](
        logits,
        kinds,
        keys,
        temperatures,
        scores,
        tokens,
        vocab_size,
        logits.stride(0),
        num_parts,
        PART=_PART,
        BLOCK=_BLOCK,
        num_warps=4,
    )
    out = logits.new_empty(num_rows, dtype=torch.int32)
    choice_kernels.best_of_row[(num_rows,)](
        kinds,
        scores,
        tokens,
        out,
        num_parts,
        PARTS=1 << (num_parts - 1).bit_length(),
        SLACK=_SLACK,
        num_warps=1,
    )
    return out
