"""The device on which tests load models: the CPU, or another one by ``pytest --device cuda``."""

from __future__ import annotations

import os

VARIABLE = "TESTS_DEVICE"
"""Tells it to processes that tests start."""


def device() -> str:
    """As torch calls it."""
    return os.environ.get(VARIABLE, "cpu")


def choose(device: str) -> None:
    """Load models there from now on. Raises ``RuntimeError`` if torch cannot use it."""
    os.environ[VARIABLE] = device
    if device == "cpu":
        return
    # The other way to look would keep processes that are forked later from using it.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(f"--device {device}: PyTorch {torch.__version__} sees no GPU here")
