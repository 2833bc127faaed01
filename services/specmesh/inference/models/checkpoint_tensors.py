"""A check that a checkpoint has the tensors that its configuration describes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from transformers.utils import CONFIG_NAME

from specmesh.inference.model import ModelNotLoadable

log = logging.getLogger(__name__)

MOST_NAMED = 3
"""The most tensors that a message names."""


def check_tensors(name: str, found: Mapping[str, Any]) -> None:
    """Raise ``ModelNotLoadable`` if transformers initialised a tensor of the model ``name`` itself.

    ``found`` is transformers' ``output_loading_info``. Tensors that are tied to others are not
    missing. Unused tensors are logged: they may belong to a part that is not loaded, such as the
    image encoder, or show that the configuration is for another model.
    """
    if missing := found["missing_keys"]:
        raise ModelNotLoadable(
            f"{name!r} lacks {_named(missing)}, which transformers would fill with random numbers"
        )
    if mismatched := found["mismatched_keys"]:
        differences = [
            f"{tensor} is {_words(stored)}, not {_words(wanted)}"
            for tensor, stored, wanted in mismatched
        ]
        raise ModelNotLoadable(f"{name!r} differs from its {CONFIG_NAME}: {_named(differences)}")
    if unused := found["unexpected_keys"]:
        log.warning("tensors not used", extra={"model": name, "tensors": _named(unused)})


def _named(tensors: Collection[str]) -> str:
    """Return the number of ``tensors``, and the names of the first of them."""
    count = "1 tensor" if len(tensors) == 1 else f"{len(tensors)} tensors"
    dots = ", ..." if len(tensors) > MOST_NAMED else ""
    return f"{count} ({', '.join(sorted(tensors)[:MOST_NAMED])}{dots})"


def _words(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "a single number"
