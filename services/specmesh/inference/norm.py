"""RMS norms by torch's own function: a model's code takes seven small operations for each."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from specmesh.inference.replace import replace

_PROBE_TOKENS = 64


class FusedRMSNorm(nn.Module):
    """What a plain RMS norm computes, bit by bit, forwards only."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self._weight = weight.detach().clone()
        self._shape = tuple(weight.shape)
        self._eps = eps

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """``[..., features]`` to the same."""
        # Weighted here, since what models do is to round before that.
        return self._weight * rms_norm(input, self._shape, eps=self._eps)


def fuse_norms(model: nn.Module, dtype: torch.dtype) -> None:
    """Replace the RMS norms of ``model``, whose activations are of ``dtype``, on the CPU.

    Only those that answer just as their replacement does: a norm may do more than its name says.
    """
    replace(model, partial(_fused, dtype=dtype))


@torch.inference_mode()
def _fused(norm: nn.Module, dtype: torch.dtype) -> FusedRMSNorm | None:
    weight = getattr(norm, "weight", None)
    eps = getattr(norm, "variance_epsilon", None) or getattr(norm, "eps", None)
    if (
        not type(norm).__name__.endswith("RMSNorm")
        or not isinstance(weight, Tensor)
        or weight.device.type != "cpu"
        or not isinstance(eps, float)
    ):
        return None
    fused = FusedRMSNorm(weight, eps)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(1, _PROBE_TOKENS, *weight.shape, generator=generator).to(dtype)
    return fused if torch.equal(norm(inputs), fused(inputs)) else None
