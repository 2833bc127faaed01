"""The checks of the tensors of heads, in every format."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


class TensorsUnfit(ValueError):
    """The tensors are not those of the heads that ``config.json`` describes."""


def check_guessed(name: str, ids: Tensor, vocab_size: int) -> None:
    """Raise ``TensorsUnfit``, which calls them ``name``, unless ``ids`` ``[n]`` are those of
    different tokens of a vocabulary."""
    listed = ids.tolist() if ids.ndim == 1 and not ids.is_floating_point() else []
    if not listed or not 0 <= min(listed) <= max(listed) < vocab_size:
        raise TensorsUnfit(f"{name!r} must list ids of tokens below {vocab_size}")
    if len(set(listed)) < len(listed):
        raise TensorsUnfit(f"{name!r} lists a token twice")


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Raise ``TensorsUnfit`` for a tensor with NaN or an infinity, which a narrower number type
    may have made of a large number."""
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise TensorsUnfit(f"the tensor {name!r} has numbers that are not finite")
