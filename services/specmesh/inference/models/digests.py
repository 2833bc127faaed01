"""A digest of everything that determines a model's answers: models with equal digests give the same
answers.

It covers the weights as they are served, rounded to their data type (quantized ones as they are
stored), and the configuration with all its defaults (RoPE, norms, activations, sizes). It leaves
out what changes answers only by rounding (torch's version, the device, the number of ranks), and
the source and number of files of the weights. The tokenizer has a fingerprint of its own.
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
"""The bytes of a tensor that one thread hashes at a time; hashlib releases the GIL meanwhile."""

_PROVENANCE = frozenset({"_name_or_path", "transformers_version", "dtype", "torch_dtype"})


def digest_of(**settings: object) -> str:
    """Return the SHA-256 in hex of JSON values, for models that have no weights."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def digest_of_array(array: npt.NDArray[Any]) -> str:
    """Return the SHA-256 in hex of the type, shape and numbers of ``array``."""
    found = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def digest_of_weights(model: Any, config: Any, *, wanted: bool) -> str:
    """Return the SHA-256 in hex of a transformers model as it was loaded, and of its configuration.

    A model divided among ranks has the digest of the whole model: all ranks must call this, since
    each contributes its part of every tensor. A rank on which it isn't ``wanted`` gets "".
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
    """Return the SHA-256 in hex of torch's ``tensors``, which come in the order of their names, and
    of a configuration. One core hashes about a GiB per second; cores share tensors that are longer
    than ``PIECE_BYTES``."""
    found = hashlib.sha256(json.dumps(_relevant(config.to_dict()), sort_keys=True).encode())
    with ThreadPoolExecutor() as threads:
        for name, tensor in tensors:
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
            for piece in threads.map(_sha256, _pieces(tensor)):
                found.update(piece)
    return found.hexdigest()


def _relevant(value: Any) -> Any:
    """Return a configuration as JSON values, without what does not affect the computation."""
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
