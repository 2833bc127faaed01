"""How far rounding alone may move the logits of a model, on any processor.

Kernels differ in the order in which they add: by instruction set, width of a vector, threads, and
by what shares a batch. So no bound here was measured on a machine. A sum of n products is off by n
times the unit roundoff at most, relative to the sum of their magnitudes (Higham, Accuracy and
Stability of Numerical Algorithms, 2002, section 3.1). The errors of sums that follow one another
add up, so n is the length of all reductions on the way from a token to its logits. A fault, such as
attention to a wrong token, shows in the first digits, far above such a bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedConfig


def length_of_sums(config: PreTrainedConfig) -> int:
    """The lengths of all reductions on the way from a token to a logit, added up."""
    hidden, context = config.hidden_size, config.max_position_embeddings
    inner: int = getattr(config, "intermediate_size", None) or 4 * hidden
    head: int = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    norm = hidden
    attention = hidden + head + 2 * context + config.num_attention_heads * head
    mlp = hidden + inner
    return config.num_hidden_layers * (2 * norm + attention + mlp) + norm + hidden


def bound(
    config: PreTrainedConfig, logits: npt.NDArray[Any], dtype: torch.dtype = torch.float32
) -> float:
    """The absolute error that rounding may cause in ``logits``, computed with ``dtype``."""
    unit = torch.finfo(dtype).eps / 2
    return length_of_sums(config) * unit * float(np.abs(logits).max())


def assert_rounded(
    found: npt.NDArray[Any],
    exact: npt.NDArray[Any],
    config: PreTrainedConfig,
    dtype: torch.dtype = torch.float32,
) -> None:
    """``found`` are the logits ``exact`` but for rounding."""
    np.testing.assert_allclose(found, exact, rtol=0, atol=bound(config, exact, dtype))
