"""The check of what compiled code is given."""

from __future__ import annotations

import torch
from torch import Tensor


def check_input(input: Tensor, num_features: int) -> None:  # noqa: A002
    """Raise ``ValueError`` unless ``input`` is ``[..., num_features]`` in float32 on the CPU:
    compiled code would misread anything else."""
    if (
        input.shape[-1] != num_features
        or input.dtype != torch.float32
        or input.device.type != "cpu"
    ):
        raise ValueError(
            f"inputs of {num_features} float32 are wanted: {tuple(input.shape)} of "
            f"{input.dtype} on {input.device} were given"
        )
