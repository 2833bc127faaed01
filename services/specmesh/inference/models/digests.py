"""One digest of all that determines a model's answers: equal for models with the same answers.

It covers the weights as they are served, rounded to their number type (quantized ones as they are
stored), and the configuration with all its defaults (RoPE, norms, activations, sizes). It leaves
out what changes answers by rounding alone (torch's version, the device, how many ranks share a
model), and from where and from how many files the weights were read. The tokenizer has a
fingerprint of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

PIECE_BYTES = 16 << 20
"""How much of a tensor one thread hashes at a time; hashlib releases the GIL meanwhile."""

_PROVENANCE = frozenset({"_name_or_path", "transformers_version", "dtype", "torch_dtype"})


def digest_of(**settings: object) -> str:
    """SHA-256 in hex over JSON values, for models that have no weights."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def digest_of_array(array: npt.NDArray[Any]) -> str:
    """SHA-256 in hex over type, shape and numbers of ``array``."""
    found = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def digest_of_weights(model: Any, config: Any, *, wanted: bool) -> str:
    """SHA-256 in hex over a transformers model as it was loaded, and over its configuration.

    A model in parts has the digest of the whole one: all ranks must call this, for each contributes
    its part of every tensor. One on which it isn't ``wanted`` gets "".
    """
    whole = (
        (name, tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor)
        for name, tensor in sorted(model.state_dict().items())
    )
    if wanted:
        return digest_of_tensors(whole, config)
    for _ in whole:
        pass
    return ""


def digest_of_tensors(tensors: Iterable[tuple[str, Any]], config: Any) -> str:
    """SHA-256 in hex over torch's ``tensors``, which come in the order of their names, and over a
    configuration. One core takes about a second for each GiB; cores share tensors that are longer
    than ``PIECE_BYTES``."""
    found = hashlib.sha256(json.dumps(_relevant(config.to_dict()), sort_keys=True).encode())
    with ThreadPoolExecutor() as threads:
        for name, tensor in tensors:
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
            for piece in threads.map(_sha256, _pieces(tensor)):
                found.update(piece)
    return found.hexdigest()


def _relevant(value: Any) -> Any:
    """A configuration as JSON values, without what does not affect the computation."""
    if isinstance(value, dict):
        return {str(key): _relevant(each) for key, each in value.items() if key not in _PROVENANCE}
    if isinstance(value, (list, tuple)):
        return [_relevant(each) for each in value]
    return value if isinstance(value, (str, int, float, type(None))) else str(value)


def _pieces(tensor: Any) -> list[memoryview]:
    import torch

    octets = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    whole = memoryview(octets.numpy())
    return [whole[start : start + PIECE_BYTES] for start in range(0, len(whole), PIECE_BYTES)]


def _sha256(piece: memoryview) -> bytes:
    return hashlib.sha256(piece).digest()
