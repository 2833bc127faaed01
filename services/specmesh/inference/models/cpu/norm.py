"""RMS norms in one operation, or in as few as torch allows.

A model's code, and torch's own ``rms_norm`` on a CPU, need eight or more small operations for each
norm. With few tokens, starting an operation takes longer than computing it: norms were an eighth of
the time of a forward pass.
"""

from __future__ import annotations

import ctypes
import struct
from copy import deepcopy
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm

from specmesh.decoding.compiled import compilation, intrinsics
from specmesh.inference.models.cpu import norm_kernel as kernel
from specmesh.inference.models.cpu.inputs import check_input
from specmesh.inference.models.cpu.replace import replace
from specmesh.inference.models.cpu.team_code import TeamCode, compiled_for_team

_ALONE_NUMBERS = 1 << 15
"""Up to so many numbers are normalised by one thread: others would begin too late to help."""
_Table = ctypes.c_int64 * kernel.NUM_FIELDS

_PROBE_TOKENS = 64
_PROBE_DECADES = (-3, 2)
_MAX_DIFFERING = 0.01
"""The share of low-precision results that may round differently; another formula changes a
third."""


class CompiledRMSNorm(nn.Module):
    """A replacement for a plain RMS norm in float32, equal except for the last bits, without
    gradients."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self._weight = weight.detach().clone()
        self._num_features = len(weight)
        self._eps_bits = int.from_bytes(struct.pack("<d", eps), "little")
        self._code = _code()

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Normalise ``[..., features]``; the shape stays. Raises ``ValueError`` for inputs of
        another width, type or device."""
        num_features, team = self._num_features, self._code.team
        check_input(input, num_features)
        rows = input.reshape(-1, num_features)
        if rows.stride(1) != 1:
            rows = rows.contiguous()
        output = rows.new_empty(input.shape)
        is_small = input.numel() <= _ALONE_NUMBERS
        table = _Table(
            *(0, num_features, self._weight.data_ptr(), self._eps_bits),
            *(1 if is_small else team.num_threads(), rows.data_ptr(), 4 * rows.stride(0)),
            *(output.data_ptr(), rows.shape[0]),
        )
        (self._code.alone if is_small else team.find)(table)
        return output


class FusedRMSNorm(nn.Module):
    """A replacement for a plain RMS norm of any type, equal except for the last bits of float32,
    without gradients."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self._weight = weight.detach().clone()
        self._eps = torch.tensor([eps], dtype=torch.float32)
        self._per_feature = 1 / weight.shape[-1]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Normalise ``[..., features]``; the shape stays."""
        length = vector_norm(input, dim=-1, keepdim=True, dtype=torch.float32)
        mean_square = torch.addcmul(self._eps, length, length, value=self._per_feature)
        normed = input * mean_square.rsqrt_()
        # Models, too, multiply by the weight after rounding.
        return self._weight * normed.to(input.dtype)


def fuse_norms(model: nn.Module, dtype: torch.dtype) -> None:
    """Replace the RMS norms of ``model``, whose activations are of ``dtype``, on the CPU.

    Only norms whose replacement gives the same results are replaced: a norm may do more than its
    name says.
    """
    replace(model, partial(_fused, dtype=dtype))


@torch.inference_mode()
def _fused(norm: nn.Module, dtype: torch.dtype) -> CompiledRMSNorm | FusedRMSNorm | None:
    weight = getattr(norm, "weight", None)
    eps = getattr(norm, "variance_epsilon", None) or getattr(norm, "eps", None)
    if (
        not type(norm).__name__.endswith("RMSNorm")
        or not isinstance(weight, Tensor)
        or weight.dim() != 1
        or weight.device.type != "cpu"
        or not isinstance(eps, float)
    ):
        return None
    kind = CompiledRMSNorm if dtype == weight.dtype == torch.float32 else FusedRMSNorm
    fused = kind(weight, eps)
    inputs = _probe(weight.shape[0])
    # In float32 throughout, since some norms return their weight's type.
    exact, fused_exact = deepcopy(norm).float(), kind(weight.float(), eps)
    if not torch.allclose(exact(inputs), fused_exact(inputs), rtol=1e-5, atol=1e-6):
        return None
    rounded = inputs.to(dtype)
    want, got = norm(rounded), fused(rounded)
    if want.dtype != got.dtype:
        return None
    rounds_alike = dtype == torch.float32 or bool((want != got).float().mean() < _MAX_DIFFERING)
    return fused if rounds_alike else None


@cache
def _code() -> TeamCode:
    files = [Path(str(module.__file__)) for module in (compilation, intrinsics, kernel)]
    return compiled_for_team(kernel.normalize, files, kernel.FASTMATH)


def _probe(features: int) -> Tensor:
    """Return inputs ``[1, tokens, features]``, some so small that they show where ``eps`` is
    added."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(1, _PROBE_TOKENS, features, generator=generator)
    return inputs * torch.logspace(*_PROBE_DECADES, _PROBE_TOKENS)[:, None]
